// cuDNN's recurrent networks: the layout of their weights.
#include "dnn.h"

using namespace fake_dnn;

namespace {
struct Rnn {
  cudnnDataType_t type;
  int gates, input, hidden, projected, layers, directions;
  bool biased;

  bool projects() const { return projected != hidden; }
  int outputs() const { return projected; }
  int inputs_of(int layer) const { return layer < directions ? input : outputs() * directions; }
  // Matrices of a layer: of the input for each gate, of the state for each gate, the projection.
  size_t layer_elements(int layer) const {
    size_t count = size_t(gates) * hidden * (inputs_of(layer) + outputs());
    return count + (projects() ? size_t(projected) * hidden : 0);
  }
  size_t matrix_elements() const {
    size_t count = 0;
    for (int layer = 0; layer < layers * directions; ++layer) count += layer_elements(layer);
    return count;
  }
  size_t bias_elements() const {
    return biased ? size_t(2) * gates * hidden * layers * directions : 0;
  }
};

Rnn* rnn(cudnnRNNDescriptor_t handle) {
  return reinterpret_cast<Rnn*>(handle);
}
}  // namespace

FAKE_EXPORT cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* out) {
  *out = reinterpret_cast<cudnnRNNDescriptor_t>(std::make_unique<Rnn>().release());
  return CUDNN_STATUS_SUCCESS;
}
FAKE_EXPORT cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t handle) {
  std::unique_ptr<Rnn> owner(rnn(handle));
  return CUDNN_STATUS_SUCCESS;
}
FAKE_EXPORT cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t handle, cudnnRNNAlgo_t, cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
    cudnnDirectionMode_t direction, cudnnRNNInputMode_t, cudnnDataType_t type, cudnnDataType_t,
    cudnnMathType_t, int32_t input, int32_t hidden, int32_t projected, int32_t layers,
    cudnnDropoutDescriptor_t, uint32_t) {
  int gates = mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1;
  *rnn(handle) = {type,
                  gates,
                  input,
                  hidden,
                  projected ? projected : hidden,
                  layers,
                  direction == CUDNN_BIDIRECTIONAL ? 2 : 1,
                  bias != CUDNN_RNN_NO_BIAS};
  return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t handle,
                                                     size_t* bytes) {
  const Rnn& r = *rnn(handle);
  *bytes = (r.matrix_elements() + r.bias_elements()) * size_of(r.type);
  return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t handle,
                                                  int32_t layer, size_t, const void* weights,
                                                  int32_t id, cudnnTensorDescriptor_t matrix,
                                                  void** matrix_address,
                                                  cudnnTensorDescriptor_t bias,
                                                  void** bias_address) {
  const Rnn& r = *rnn(handle);
  auto* base = static_cast<char*>(const_cast<void*>(weights));
  size_t offset = 0;
  for (int before = 0; before < layer; ++before) offset += r.layer_elements(before);
  size_t of_input = size_t(r.hidden) * r.inputs_of(layer),
         of_state = size_t(r.hidden) * r.outputs();
  int rows = r.hidden, columns = r.outputs();
  // The caller may ask for one of the two only.
  if (matrix_address) *matrix_address = nullptr;
  if (bias_address) *bias_address = nullptr;
  if (id < r.gates) {
    offset += id * of_input;
    columns = r.inputs_of(layer);
  } else if (id < 2 * r.gates) {
    offset += r.gates * of_input + (id - r.gates) * of_state;
  } else {  // the projection
    if (!r.projects()) return CUDNN_STATUS_SUCCESS;
    offset += r.gates * (of_input + of_state);
    rows = r.projected;
    columns = r.hidden;
  }
  if (matrix) *get(matrix) = {r.type, {1, rows, columns}, {rows * columns, columns, 1}};
  if (matrix_address) *matrix_address = base + offset * size_of(r.type);
  if (r.biased && id < 2 * r.gates) {
    size_t at = r.matrix_elements() + size_t(2 * r.gates * layer + id) * r.hidden;
    if (bias) *get(bias) = {r.type, {1, r.hidden, 1}, {r.hidden, 1, 1}};
    if (bias_address) *bias_address = base + at * size_of(r.type);
  }
  return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t,
                                                    cudnnForwardMode_t mode,
                                                    cudnnRNNDataDescriptor_t, size_t* work,
                                                    size_t* reserve) {
  *work = 256 << 10;
  if (reserve) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? 256 << 10 : 0;
  return CUDNN_STATUS_SUCCESS;
}

FAKE_EXPORT cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t, size_t* bytes) {
  *bytes = 64 << 10;
  return CUDNN_STATUS_SUCCESS;
}
FAKE_EXPORT cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t handle,
                                                    float, void*, size_t, unsigned long long) {
  return record(handle, "cudnnSetDropoutDescriptor");
}
