// Entry points of the driver that libcaffe2_nvrtc.so names and that nobody calls here. In a file
// that sees no header, as their types do not matter.
#define UNSUPPORTED(name) \
  int name(void) { return 801; }
UNSUPPORTED(cuLinkAddData_v2)
UNSUPPORTED(cuLinkComplete)
UNSUPPORTED(cuLinkCreate_v2)
UNSUPPORTED(cuModuleLoad)
UNSUPPORTED(cuTensorMapEncodeTiled)
