"""fake_cuda.h for Python. Import it only in a process that has the fake preloaded."""

import ctypes
from collections import namedtuple
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

runtime = ctypes.CDLL("libcudart.so.13")

KINDS = ["kernel", "memcpy", "memset", "host", "empty", "child", "alloc", "free", "conditional"]
Node = namedtuple("Node", "kind name tag stream priority")
Graph = namedtuple("Graph", "nodes edges")  # edges: pairs of indices of nodes
Allocation = namedtuple("Allocation", "address bytes is_free captured_nodes")
HostFunction = ctypes.CFUNCTYPE(None, c_void_p)


class _Node(ctypes.Structure):
    _fields_ = [
        ("tag", c_int64),
        ("stream", c_uint64),
        ("name", c_char_p),
        ("kind", c_int32),
        ("range_count", c_int32),
        ("priority", c_int32),
    ]


class _Allocation(ctypes.Structure):
    _fields_ = [
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("is_free", c_int32),
        ("captured_nodes", c_int32),
    ]


class Counters(ctypes.Structure):
    _fields_ = [
        (name, c_int64)
        for name in (
            "streams events graphs executables user_objects captures device_bytes device_blocks "
            "pinned_bytes blas_handles dnn_handles kernel_launches graph_launches captured_nodes"
        ).split()
    ]


def _declare(name, result, *arguments):
    function = getattr(runtime, "fake_cuda_" + name)
    function.restype, function.argtypes = result, arguments
    return function


set_tag = _declare("set_tag", None, c_int64)
set_seed = _declare("set_seed", None, c_uint64)
set_log = _declare("set_log", None, c_int)
set_memory = _declare("set_memory", None, c_uint64)
set_blank = _declare("set_blank", None, c_int)
_set_cost = _declare("set_cost", None, c_char_p, c_double)
fail_malloc = _declare("fail_malloc", None, c_int64, c_int64)
fail_launch = _declare("fail_launch", None, c_int64, c_int)
fail_later = _declare("fail_later", None, c_int64, c_int)
stream_number = _declare("stream_number", c_uint64, c_void_p)
clear_allocations = _declare("clear_allocations", None)
_take_last_capture = _declare("take_last_capture", c_void_p)
_take_log = _declare("take_log", c_void_p)
_free_snapshot = _declare("free_snapshot", None, c_void_p)
_node_count = _declare("node_count", c_size_t, c_void_p)
_edge_count = _declare("edge_count", c_size_t, c_void_p)
_get_nodes = _declare("get_nodes", None, c_void_p, POINTER(_Node))
_get_edges = _declare("get_edges", None, c_void_p, POINTER(c_int32))
_last_launch_order = _declare("last_launch_order", c_size_t, POINTER(c_int32), c_size_t)
_allocation_count = _declare("allocation_count", c_size_t)
_get_allocations = _declare("get_allocations", None, POINTER(_Allocation))
_get_counters = _declare("get_counters", None, POINTER(Counters))
runtime.cudaLaunchHostFunc.argtypes = [c_void_p, HostFunction, c_void_p]


def _graph(snapshot):
    if not snapshot:
        return None
    nodes = (_Node * _node_count(snapshot))()
    edges = (c_int32 * (2 * _edge_count(snapshot)))()
    _get_nodes(snapshot, nodes)
    _get_edges(snapshot, edges)
    _free_snapshot(snapshot)
    return Graph(
        [
            Node(KINDS[node.kind], node.name.decode(), node.tag, node.stream, node.priority)
            for node in nodes
        ],
        list(zip(edges[::2], edges[1::2])),
    )


def last_capture():
    """The nodes and edges of the last capture that ended well, or None."""
    return _graph(_take_last_capture())


def set_cost(name_part, microseconds):
    """How long what has this in its name seems to take, from now on."""
    _set_cost(name_part.encode(), microseconds)


def log():
    """What ran outside of captures since `set_log(1)`, or since the last call."""
    return _graph(_take_log()).nodes


def last_launch_order():
    """Indices of the nodes of the last graph launch in the order they ran."""
    count = _last_launch_order(None, 0)
    order = (c_int32 * count)()
    _last_launch_order(order, count)
    return list(order)


def allocations():
    """Every cudaMalloc and cudaFree so far."""
    events = (_Allocation * _allocation_count())()
    _get_allocations(events)
    return [Allocation(e.address, e.bytes, bool(e.is_free), e.captured_nodes) for e in events]


def counters():
    """What lives and what was done, as a dict."""
    out = Counters()
    _get_counters(byref(out))
    return {name: getattr(out, name) for name, _ in Counters._fields_}


_kept = []


def call(function, stream):
    """Work that really runs: a Python function as a host node on a torch.cuda.Stream."""
    wrapped = HostFunction(lambda _: function())
    _kept.append(wrapped)  # a graph may call it at any time
    return runtime.cudaLaunchHostFunc(stream.cuda_stream, wrapped, None)
