"""The ops of the database that are refused, and why: what the error says.

Each of them depends on values in a way that a replay cannot follow, or is no program of plain
tensors. Other samples of the same op may well be replayed.
"""

READS_BACK = "it reads a value back into the program"
DECIDES = "it reads the values of a tensor to decide what to do"
SHAPE = "the shape of its result depends on values"
SPARSE = "layout Sparse"

REFUSED = {
    "allclose": READS_BACK,  # returns a bool
    "argwhere": SHAPE,
    "bincount": SHAPE,
    "corrcoef": READS_BACK,
    "cov": READS_BACK,  # checks the weights
    "equal": READS_BACK,  # returns a bool
    "istft": READS_BACK,  # checks the window
    "item": READS_BACK,
    "linalg.lstsq": SHAPE,  # that of the residuals, on the rank
    "linalg.lstsq.grad_oriented": SHAPE,
    "masked_select": SHAPE,
    "nanquantile": READS_BACK,
    "narrow": READS_BACK,  # where the start is a tensor
    "nn.functional.ctc_loss": SHAPE,
    "nn.functional.gaussian_nll_loss": READS_BACK,  # checks the variance
    "nn.functional.one_hot": READS_BACK,  # looks for the largest class
    "nonzero": SHAPE,
    "quantile": READS_BACK,  # checks a tensor of quantiles
    "sparse.mm.reduce": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "tensor_split": DECIDES,  # where the indices are a tensor
    "to_sparse": SPARSE,
    "unique": SHAPE,
    "unique_consecutive": SHAPE,
}
