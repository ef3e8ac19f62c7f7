// libnvidia-ml.so.1: one device. What is not here makes PyTorch do without.
#include <cstdio>

#include "state.h"

namespace {
constexpr int kNotSupported = 3;
int device = 0;
}  // namespace

FAKE_EXPORT int nvmlInit() {
  return 0;
}
FAKE_EXPORT int nvmlInit_v2() {
  return 0;
}
FAKE_EXPORT int nvmlShutdown() {
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned, void** out) {
  *out = &device;
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** out) {
  *out = &device;
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetUUID(void*, char* text, unsigned length) {
  std::snprintf(text, length, "GPU-01000000-0000-0000-0000-000000000000");
  return 0;
}
FAKE_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = CUDART_VERSION;
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetComputeRunningProcesses() {
  return kNotSupported;
}
FAKE_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType() {
  return kNotSupported;
}
FAKE_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2() {
  return kNotSupported;
}
FAKE_EXPORT int nvmlDeviceGetGpuFabricInfoV() {
  return kNotSupported;
}
