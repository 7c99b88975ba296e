"""How a model with finite features searches its hyper-parameters."""

from __future__ import annotations

from streamgp.evidence.search import ADAM, Way
from streamgp.kernels import Stationary
from streamgp.online.options import EvidenceOptions


def way_of(config: EvidenceOptions, kernel: Stationary, usual: Way = ADAM) -> Way:
    """By SCGD where the options ask for it, else as usual.

    Args:
        config: of the model.
        kernel: radial.
        usual: the search on thinned rows.
    """
    if config.evidence == "thinned":
        return usual
    from streamgp.papers.finite_rkhs.reestimate import way

    return way(kernel)
