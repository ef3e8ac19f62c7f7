# Finds PyTorch as pip installed it. PyTorch's own CMake config is not used: it wants a CUDA toolkit.
#
# Which one: the one that `Nimble_PYTHON` imports, else `Python_EXECUTABLE`, else python3.
#
#   TorchWheel::torch    the C++ library
#   TorchWheel::python   the C++ library with its Python side: what an extension module links
#   TorchWheel::cuda     the C++ library with its CUDA side, and the CUDA headers of the wheel;
#                        only if this PyTorch has them
#   TorchWheel_VERSION, TorchWheel_PATH (the package's folder), TorchWheel_CUDA (true or false)

if(Nimble_PYTHON)
  set(_python "${Nimble_PYTHON}")
elseif(Python_EXECUTABLE)
  set(_python "${Python_EXECUTABLE}")
else()
  set(_python python3)
endif()

# Looks without importing, which would take seconds. The version is MAJOR.MINOR.PATCH.
execute_process(
  COMMAND "${_python}" -c "
import importlib.metadata, importlib.util, re
print(re.match(r'[0-9.]+[0-9]', importlib.metadata.version('torch'))[0])
print(importlib.util.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE _answer
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE _failed)
unset(TorchWheel_VERSION)
unset(TorchWheel_PATH)
if(NOT _failed)
  string(REPLACE "\n" ";" _answer "${_answer}")
  list(GET _answer 0 TorchWheel_VERSION)
  list(GET _answer 1 TorchWheel_PATH)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  TorchWheel
  REQUIRED_VARS TorchWheel_PATH
  VERSION_VAR TorchWheel_VERSION
  HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "'${_python}' has no package torch: set Nimble_PYTHON to one that has")

if(TorchWheel_FOUND AND NOT TARGET TorchWheel::torch)
  set(_lib "${TorchWheel_PATH}/lib")

  # All three stay linked even where no symbol of them is used: libtorch.so brings CUDA with it, if
  # there, and a library's own dependencies are found only if the program has them too. The plain
  # path makes CMake set the run path.
  add_library(TorchWheel::torch INTERFACE IMPORTED)
  target_compile_features(TorchWheel::torch INTERFACE cxx_std_20)
  target_include_directories(
    TorchWheel::torch INTERFACE "${TorchWheel_PATH}/include"
                                "${TorchWheel_PATH}/include/torch/csrc/api/include")
  target_link_libraries(
    TorchWheel::torch
    INTERFACE
      "-Wl,--push-state,--no-as-needed,${_lib}/libtorch.so,${_lib}/libtorch_cpu.so,${_lib}/libc10.so,--pop-state"
      "${_lib}/libc10.so")

  add_library(TorchWheel::python INTERFACE IMPORTED)
  target_link_libraries(TorchWheel::python INTERFACE "${_lib}/libtorch_python.so" TorchWheel::torch)

  set(TorchWheel_CUDA FALSE)
  file(GLOB _cuda_include "${TorchWheel_PATH}/../nvidia/cu[0-9]*/include")
  if(EXISTS "${_lib}/libtorch_cuda.so" AND _cuda_include)
    set(TorchWheel_CUDA TRUE)
    add_library(TorchWheel::cuda INTERFACE IMPORTED)
    target_include_directories(TorchWheel::cuda INTERFACE ${_cuda_include})
    target_link_libraries(TorchWheel::cuda INTERFACE "${_lib}/libtorch_cuda.so"
                                                     "${_lib}/libc10_cuda.so" TorchWheel::torch)
  endif()
endif()
