// Stream capture and its rules; see "Prohibited and Unhandled Operations" in the programming guide.
#include "state.h"

using namespace fake_cuda;

namespace {
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode, Graph* graph,
                  std::vector<int> tail) {
  State& s = state();
  Stream* stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream == &s.legacy) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture) return cudaErrorIllegalState;
  if (!graph) graph = *s.graphs.insert(std::make_unique<Graph>().release()).first;
  auto capture = std::make_shared<Capture>();
  capture->id = s.next_capture++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->graph = graph;
  capture->streams.insert(stream);
  stream->capture = capture;
  stream->tail = std::move(tail);
  s.captures.insert(capture);
  return cudaSuccess;
}

// Every stream's work must lead to the origin's last node.
bool all_joined(const Capture& capture) {
  for (Stream* stream : capture.streams)
    for (int node : stream->tail)
      if (!is_ancestor_or_same(*capture.graph, node, capture.origin->tail)) return false;
  return true;
}
}  // namespace

namespace fake_cuda {
void invalidate(Capture& capture) {
  capture.invalidated = true;
}

cudaError_t check_unsafe_call() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (auto& capture : state().captures) {
    bool own = capture->thread == std::this_thread::get_id() &&
               capture->mode != cudaStreamCaptureModeRelaxed;
    bool other =
        thread_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if ((own || other) && !capture->invalidated) {
      invalidate(*capture);
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  return error;
}

cudaError_t check_legacy_stream() {
  cudaError_t error = cudaSuccess;
  for (auto& capture : state().captures)
    for (Stream* stream : capture->streams)
      if (!(stream->flags & cudaStreamNonBlocking) && !capture->invalidated) {
        invalidate(*capture);
        error = cudaErrorStreamCaptureImplicit;
      }
  return error;
}
}  // namespace fake_cuda

FAKE_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  std::lock_guard guard(state().lock);
  return result(begin(stream, mode, nullptr, {}));
}
FAKE_EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                      const cudaGraphNode_t* dependencies,
                                                      const cudaGraphEdgeData*, size_t count,
                                                      cudaStreamCaptureMode mode) {
  std::lock_guard guard(state().lock);
  std::vector<int> tail;
  for (size_t i = 0; i < count; ++i)
    tail.push_back(reinterpret_cast<Node*>(dependencies[i])->index);
  return result(begin(stream, mode, reinterpret_cast<Graph*>(graph), std::move(tail)));
}

FAKE_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  State& s = state();
  *out = nullptr;
  std::vector<Work> after_unlock;
  cudaError_t error = cudaSuccess;
  {
    std::lock_guard guard(s.lock);
    Stream* stream = find_stream(handle);
    if (!stream) return result(cudaErrorInvalidResourceHandle);
    auto capture = stream->capture;
    if (!capture) return result(cudaErrorIllegalState);
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id())
      return result(cudaErrorStreamCaptureWrongThread);
    if (capture->origin != stream) {
      invalidate(*capture);
      return result(cudaErrorStreamCaptureUnmatched);
    }
    if (capture->invalidated) {
      error = cudaErrorStreamCaptureInvalidated;
    } else if (!all_joined(*capture)) {
      error = cudaErrorStreamCaptureUnjoined;
    }
    capture->active = false;
    for (Stream* member : capture->streams) {
      member->capture = nullptr;
      member->tail.clear();
    }
    s.captures.erase(capture);
    if (!error) {
      *out = reinterpret_cast<cudaGraph_t>(capture->graph);
      s.last_capture = capture->graph->nodes;
      for (Node& node : s.last_capture) node.work = {};
      s.has_last_capture = true;
    } else if (s.graphs.erase(capture->graph)) {
      std::unique_ptr<Graph> owner(capture->graph);
      for (auto& [object, count] : owner->user_objects) release(object, count, after_unlock);
    }
  }
  for (Work& work : after_unlock) work();
  return result(error);
}

FAKE_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* out) {
  std::lock_guard guard(state().lock);
  Stream* stream = find_stream(handle);
  if (!stream) return result(cudaErrorInvalidResourceHandle);
  if (stream == &state().legacy)
    if (auto error = check_legacy_stream()) return result(error);
  *out = !stream->capture               ? cudaStreamCaptureStatusNone
         : stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* out,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** dependencies,
                                                 const cudaGraphEdgeData** edges, size_t* count) {
  if (auto error = cudaStreamIsCapturing(handle, out)) return error;
  std::lock_guard guard(state().lock);
  Stream* stream = find_stream(handle);
  if (!stream || !stream->capture || stream->capture->invalidated) return cudaSuccess;
  Capture& capture = *stream->capture;
  if (id) *id = capture.id;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(capture.graph);
  stream->tail_handles.clear();
  for (int node : stream->tail)
    stream->tail_handles.push_back(reinterpret_cast<cudaGraphNode_t>(&capture.graph->nodes[node]));
  if (dependencies) *dependencies = stream->tail_handles.data();
  if (edges) *edges = nullptr;
  if (count) *count = stream->tail_handles.size();
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle,
                                                            cudaGraphNode_t* dependencies,
                                                            const cudaGraphEdgeData*, size_t count,
                                                            unsigned flags) {
  std::lock_guard guard(state().lock);
  Stream* stream = find_stream(handle);
  if (!stream || !stream->capture) return result(cudaErrorIllegalState);
  if (flags & cudaStreamSetCaptureDependencies) stream->tail.clear();
  for (size_t i = 0; i < count; ++i)
    stream->tail.push_back(reinterpret_cast<Node*>(dependencies[i])->index);
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
