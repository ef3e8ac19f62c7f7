// libcublasLt.so.13: matrix products. Descriptors are empty objects, as nothing is computed.
#include <cublasLt.h>

#include <cstring>

#include "state.h"

namespace {
template <class Handle>
cublasStatus_t make(Handle* out) {
  *out = reinterpret_cast<Handle>(std::make_unique<char>().release());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy(void* handle) {
  std::unique_ptr<char> owner(static_cast<char*>(handle));
  return CUBLAS_STATUS_SUCCESS;
}
}  // namespace

extern "C" __attribute__((visibility("hidden"))) int fake_cuda_work(const char*, void*) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

FAKE_EXPORT size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}
FAKE_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) {
  return make(out);
}
FAKE_EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle);
}
FAKE_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t,
                                                    cudaDataType_t) {
  return make(out);
}
FAKE_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  return destroy(handle);
}
FAKE_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType,
                                                      uint64_t, uint64_t, int64_t) {
  return make(out);
}
FAKE_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  return destroy(handle);
}
FAKE_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  return make(out);
}
FAKE_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  return destroy(handle);
}
FAKE_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
    cublasLtMatmulHeuristicResult_t results[], int* count) {
  std::memset(results, 0, sizeof results[0]);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
FAKE_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*,
                                          const void*, cublasLtMatrixLayout_t, const void*,
                                          cublasLtMatrixLayout_t, const void*, const void*,
                                          cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                                          const cublasLtMatmulAlgo_t*, void*, size_t,
                                          cudaStream_t stream) {
  return fake_cuda_library_call(stream, "cublasLtMatmul", nullptr, 0)
             ? CUBLAS_STATUS_EXECUTION_FAILED
             : CUBLAS_STATUS_SUCCESS;
}
