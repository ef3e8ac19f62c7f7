// cuDNN's backend interface: descriptors keep what they are given; one engine fits every graph.
#include <cstring>
#include <map>

#include "dnn.h"

using namespace fake_dnn;

namespace {
struct Attribute {
  int64_t count = 0;
  std::vector<char> bytes;
};
struct Backend {
  cudnnBackendDescriptorType_t type;
  std::map<int, Attribute> attributes;
};

Backend* backend(cudnnBackendDescriptor_t handle) {
  return static_cast<Backend*>(handle);
}

size_t size_of_type(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_FRACTION:
      return 16;
    default:
      return 4;
  }
}

cudnnBackendDescriptor_t first_descriptor(Backend* of, int attribute) {
  auto found = of->attributes.find(attribute);
  if (found == of->attributes.end() || !found->second.count) return nullptr;
  cudnnBackendDescriptor_t out;
  std::memcpy(&out, found->second.bytes.data(), sizeof out);
  return out;
}

// Lists that are empty for the one engine.
bool is_empty_list(int attribute) {
  return attribute == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE ||
         attribute == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE || attribute == CUDNN_ATTR_ENGINE_KNOB_INFO ||
         attribute == CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO ||
         attribute == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES;
}
}  // namespace

FAKE_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t* out) {
  *out = std::make_unique<Backend>(Backend{type, {}}).release();
  return CUDNN_STATUS_SUCCESS;
}
FAKE_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  std::unique_ptr<Backend> owner(backend(handle));
  return CUDNN_STATUS_SUCCESS;
}
FAKE_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count,
                                                   const void* values) {
  auto* bytes = static_cast<const char*>(values);
  Attribute& attribute = backend(handle)->attributes[name];
  attribute.count = count;
  attribute.bytes.assign(bytes, bytes + count * size_of_type(type));
  return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t room,
                                                   int64_t* count, void* out) {
  Backend* from = backend(handle);
  if (is_empty_list(name)) {
    if (count) *count = 0;
    return CUDNN_STATUS_SUCCESS;
  }
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    // The caller made the descriptors; they become copies. A heuristic's one result is itself, as
    // its operation graph is all that matters.
    if (count) *count = 1;
    if (!out || room < 1) return CUDNN_STATUS_SUCCESS;
    Backend* to = backend(*static_cast<cudnnBackendDescriptor_t*>(out));
    auto* source = backend(first_descriptor(from, name));
    if (to) to->attributes = (source ? source : from)->attributes;
    return CUDNN_STATUS_SUCCESS;
  }
  auto found = from->attributes.find(name);
  if (found != from->attributes.end()) {
    const Attribute& attribute = found->second;
    if (count) *count = attribute.count;
    size_t bytes = std::min<size_t>(attribute.bytes.size(), room * size_of_type(type));
    if (out) std::memcpy(out, attribute.bytes.data(), bytes);
    return CUDNN_STATUS_SUCCESS;
  }
  if (count) *count = 1;
  if (out && room > 0) {
    std::memset(out, 0, size_of_type(type));
    // As for other spaces: some memory, so that tests of memory meet it.
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) *static_cast<int64_t*>(out) = 64 << 10;
  }
  return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t,
                                              cudnnBackendDescriptor_t) {
  return record(handle, "cudnnBackendExecute");
}
