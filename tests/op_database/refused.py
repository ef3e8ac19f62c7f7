"""The ops of the database that are refused, and why: what the errors say.

Each of them depends on values in a way that a replay cannot follow, or is no program of plain
tensors. Other samples of the same op may well be replayed.
"""

READS_BACK = "it reads a value back into the program"
DECIDES = "it reads the values of a tensor to decide what to do"
SHAPE = "the shape of its result depends on values"
SPARSE = "layout Sparse"
RESHAPES = "it changes the shape of a tensor of the caller"
OUTSIDE = "it reaches memory outside of an input"
MASK = "a boolean mask selects by value how many elements there are"
INSIDE = "it computes by itself, not by ops that can be replayed"
ZERO = "its result is a tensor with dispatch keys"

REFUSED = {
    "__getitem__": MASK,
    "addbmm, in place": RESHAPES,  # to the shape that is broadcast to
    "allclose": READS_BACK,  # returns a bool
    "argwhere": SHAPE,
    "as_strided.partial_views": OUTSIDE,
    "as_strided.partial_views, in place": OUTSIDE,
    "bincount": SHAPE,
    "cov": READS_BACK,  # checks the weights
    "equal": READS_BACK,  # returns a bool
    "istft": READS_BACK,  # checks the window
    "item": READS_BACK,
    "linalg.lstsq": SHAPE,  # that of the residuals, on the rank
    "linalg.lstsq.grad_oriented": SHAPE,
    "masked_select": SHAPE,
    "narrow": READS_BACK,  # where the start is a tensor
    "nn.functional.ctc_loss": DECIDES,  # where the lengths are tensors
    "nn.functional.gaussian_nll_loss": READS_BACK,  # checks the variance
    "nn.functional.one_hot": READS_BACK,  # looks for the largest class
    "nonzero": SHAPE,
    "repeat_interleave": SHAPE,  # where the repeats are a tensor
    "sparse.mm.reduce": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "tensor_split": DECIDES,  # where the indices are a tensor
    "to_sparse": SPARSE,
    "unique": SHAPE,
    "unique_consecutive": SHAPE,
}

# Of the same ops with their gradients in one program; more than one reason for some.
REFUSED_WITH_GRADIENTS = {
    "__getitem__": (MASK,),
    "as_strided.partial_views": (OUTSIDE,),
    "cov": (READS_BACK,),
    "cumprod": (READS_BACK,),  # looks for zeros
    "index_fill": (SHAPE,),  # where there are many indices
    "index_put": (MASK,),
    "istft": (READS_BACK,),
    "linalg.eig": (READS_BACK,),  # checks that the gradient is well defined
    "linalg.lstsq": (SHAPE,),
    "linalg.lstsq.grad_oriented": (SHAPE,),
    "linalg.vander": (READS_BACK,),
    "masked.cumprod": (READS_BACK,),
    "masked.prod": (READS_BACK,),
    "masked_fill": (SHAPE,),
    "masked_select": (SHAPE,),
    "max.reduction_no_dim": (READS_BACK,),  # looks for the largest numbers
    "median": (READS_BACK,),
    "min.reduction_no_dim": (READS_BACK,),
    "nanmedian": (READS_BACK,),
    "nanquantile": (READS_BACK, INSIDE),  # checks the shares
    "narrow": (READS_BACK,),
    "nn.functional.ctc_loss": (DECIDES,),
    "nn.functional.embedding": (SPARSE,),
    "nn.functional.embedding_bag": (SPARSE,),
    "nn.functional.gaussian_nll_loss": (READS_BACK,),
    "prod": (READS_BACK, SHAPE),  # looks for zeros
    "quantile": (READS_BACK, INSIDE),
    "repeat_interleave": (SHAPE,),
    "sgn": (ZERO,),  # zeros without memory
    "sparse.mm.reduce": (SPARSE,),
    "tensor_split": (DECIDES,),
}
