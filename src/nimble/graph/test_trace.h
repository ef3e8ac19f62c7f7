#pragma once

#include <string>
#include <vector>

#include "nimble/trace/trace.h"

namespace nimble::testing {

// Writes traces by hand: buffers of floats, and calls on stretches of them.
class TraceWriter {
 public:
  BufferId buffer(Role role, int64_t floats) {
    trace.buffers.push_back({static_cast<size_t>(floats) * 4, role, "", false});
    return BufferId(trace.buffers.size() - 1);
  }

  // Elements [begin, end) of a buffer; the whole of it without bounds.
  ViewId view(BufferId buffer, int64_t begin = 0, int64_t end = -1) {
    if (end < 0) end = static_cast<int64_t>(trace.buffers[buffer.index].bytes) / 4;
    TensorDesc desc;
    desc.dtype = {6, 4, "Float"};
    desc.sizes = {end - begin};
    desc.strides = {1};
    desc.offset = begin;
    trace.views.push_back({buffer, desc});
    return ViewId(trace.views.size() - 1);
  }

  CallId call(const std::string& op, std::vector<ViewId> reads, std::vector<ViewId> writes,
              std::vector<ViewId> updates = {}) {
    Call call;
    call.op = op;
    for (ViewId v : reads) call.uses.push_back({v, true, false});
    for (ViewId v : writes) call.uses.push_back({v, false, true});
    for (ViewId v : updates) call.uses.push_back({v, true, true});
    trace.calls.push_back(call);
    return CallId(trace.calls.size() - 1);
  }

  Trace trace;
};

}  // namespace nimble::testing
