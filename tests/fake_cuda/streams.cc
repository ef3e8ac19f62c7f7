// Streams and events. Work outside of captures runs when it is issued, so nothing ever waits.
#include <algorithm>

#include "state.h"

using namespace fake_cuda;

namespace {
Event* find_event(cudaEvent_t handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return state().events.count(event) ? event : nullptr;
}

// With the lock held: a call that asks about a stream's work.
cudaError_t check_wait(Stream* stream) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    invalidate(*stream->capture);
    return cudaErrorStreamCaptureUnsupported;
  }
  if (auto error = check_unsafe_call()) return error;
  if (stream == &state().legacy)
    if (auto error = check_legacy_stream()) return error;
  return take_later_error();
}

// With the lock held: a call that asks about an event's work.
cudaError_t check_wait(Event* event) {
  if (!event) return cudaErrorInvalidResourceHandle;
  if (event->capture) {
    if (event->capture->active) invalidate(*event->capture);
    return cudaErrorCapturedEvent;
  }
  if (auto error = check_unsafe_call()) return error;
  return take_later_error();
}

cudaError_t make_stream(cudaStream_t* out, unsigned flags, int priority) {
  State& s = state();
  std::lock_guard guard(s.lock);
  auto made =
      std::make_unique<Stream>(Stream{s.next_stream++, flags, priority, nullptr, {}, {}, 0});
  *out = reinterpret_cast<cudaStream_t>(made.get());
  s.streams.insert(made.release());
  return cudaSuccess;
}
}  // namespace

FAKE_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return make_stream(stream, cudaStreamDefault, 0);
}
FAKE_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return make_stream(stream, flags, 0);
}
FAKE_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                     int priority) {
  return make_stream(stream, flags, std::clamp(priority, -5, 0));
}

FAKE_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  State& s = state();
  std::lock_guard guard(s.lock);
  Stream* stream = find_stream(handle);
  if (!stream || stream == &s.legacy) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture) {  // what it issued can no longer be joined
    invalidate(*stream->capture);
    stream->capture->streams.erase(stream);
    return result(cudaErrorStreamCaptureUnsupported);
  }
  s.streams.erase(stream);
  std::unique_ptr<Stream> owner(stream);
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  std::lock_guard guard(state().lock);
  Stream* stream = find_stream(handle);
  if (!stream) return result(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  std::lock_guard guard(state().lock);
  Stream* stream = find_stream(handle);
  if (!stream) return result(cudaErrorInvalidResourceHandle);
  *flags = stream->flags;
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::lock_guard guard(state().lock);
  return result(check_wait(find_stream(stream)));
}
FAKE_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
  std::lock_guard guard(state().lock);
  return result(check_wait(find_stream(stream)));
}

// A device comprises its capturing streams, whatever the thread's mode.
FAKE_EXPORT cudaError_t cudaDeviceSynchronize() {
  State& s = state();
  std::lock_guard guard(s.lock);
  cudaError_t error = cudaSuccess;
  for (auto& capture : s.captures)
    if (!capture->invalidated) {
      invalidate(*capture);
      error = cudaErrorStreamCaptureUnsupported;
    }
  return result(error ? error : take_later_error());
}

FAKE_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  State& s = state();
  std::lock_guard guard(s.lock);
  auto made = std::make_unique<Event>();
  made->flags = flags;
  *out = reinterpret_cast<cudaEvent_t>(made.get());
  s.events.insert(made.release());
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}
FAKE_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  State& s = state();
  std::lock_guard guard(s.lock);
  Event* event = find_event(handle);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  s.events.erase(event);
  std::unique_ptr<Event> owner(event);
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event_handle,
                                                 cudaStream_t stream_handle, unsigned) {
  std::lock_guard guard(state().lock);
  Event* event = find_event(event_handle);
  Stream* stream = find_stream(stream_handle);
  if (!event || !stream) return result(cudaErrorInvalidResourceHandle);
  if (stream == &state().legacy)
    if (auto error = check_legacy_stream()) return result(error);
  if (stream->capture && stream->capture->invalidated)
    return result(cudaErrorStreamCaptureInvalidated);
  event->capture = stream->capture;
  event->tail = stream->tail;
  event->time = stream->time;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

FAKE_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle,
                                            unsigned) {
  State& s = state();
  std::lock_guard guard(s.lock);
  Event* event = find_event(event_handle);
  Stream* stream = find_stream(stream_handle);
  if (!event || !stream) return result(cudaErrorInvalidResourceHandle);
  if (stream == &s.legacy)
    if (auto error = check_legacy_stream()) return result(error);
  auto from = event->capture;
  if (stream->capture) {
    if (stream->capture->invalidated) return result(cudaErrorStreamCaptureInvalidated);
    if (!from || !from->active) {
      invalidate(*stream->capture);
      return result(cudaErrorStreamCaptureIsolation);
    }
    if (from != stream->capture) {
      invalidate(*stream->capture);
      invalidate(*from);
      return result(cudaErrorStreamCaptureMerge);
    }
  } else {
    if (!from) {
      stream->time = std::max(stream->time, event->time);
      return cudaSuccess;
    }
    if (!from->active) return result(cudaErrorCapturedEvent);
    if (from->invalidated) return result(cudaErrorStreamCaptureInvalidated);
    if (stream == &s.legacy) {  // the legacy stream cannot be captured
      invalidate(*from);
      return result(cudaErrorStreamCaptureImplicit);
    }
    stream->capture = from;
    stream->tail.clear();
    from->streams.insert(stream);
  }
  stream->tail.insert(stream->tail.end(), event->tail.begin(), event->tail.end());
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  std::lock_guard guard(state().lock);
  return result(check_wait(find_event(event)));
}
FAKE_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::lock_guard guard(state().lock);
  return result(check_wait(find_event(event)));
}
FAKE_EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                             cudaEvent_t end) {
  std::lock_guard guard(state().lock);
  Event *first = find_event(begin), *last = find_event(end);
  if (auto error = check_wait(first)) return result(error);
  if (auto error = check_wait(last)) return result(error);
  if ((first->flags | last->flags) & cudaEventDisableTiming)
    return result(cudaErrorInvalidResourceHandle);
  *milliseconds = float((last->time - first->time) / 1000);
  return cudaSuccess;
}
