"""Reports: a run or a comparison as one HTML page that opens offline."""
