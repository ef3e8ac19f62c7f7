#include <torch/csrc/utils/pybind.h>

#include "nimble/python/engine_binding.h"
#include "nimble/python/errors.h"
#include "nimble/python/source_location.h"
#include "nimble/python/without_gil.h"
#include "nimble/torch/recording.h"
#include "nimble/torch/uncounted_writes.h"

PYBIND11_MODULE(_C, module) {
  nimble::bind_errors(module);
  nimble::bind_engine(module);
  pybind11::module_::import("atexit").attr("register")(
      pybind11::cpp_function(&nimble::stop_replays_at_exit));
  nimble::set_source_locator(nimble::python_source_location);
  module.def("enter_module", &nimble::enter_module);
  module.def("leave_module", &nimble::leave_module);
  module.def("refuse_recording", &nimble::refuse_recording);
  module.def("peek", &nimble::peek);
  module.def("carry_gradients", &nimble::carry_gradients);
  module.def("join_outputs_from", &nimble::join_outputs_from);
  module.def("note_uncounted_writes", [](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) nimble::note_uncounted_write(tensor);
  });
  module.def("existed_before_recording", &nimble::existed_before_recording);
  // A list of (is a list, numbers, which live values they are).
  module.def("announce_live",
             [](const std::vector<std::tuple<bool, std::vector<double>, std::vector<int32_t>>>&
                    announced) {
               std::vector<nimble::LiveArgument> arguments;
               for (const auto& [is_list, numbers, values] : announced)
                 arguments.push_back({is_list, numbers, values});
               nimble::announce_live(std::move(arguments));
             });
}
