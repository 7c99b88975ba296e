"""Cross-validation beside the marginal likelihood (Xu et al. 2019): which of them chooses hyper-parameters."""
