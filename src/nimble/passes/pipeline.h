#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nimble/passes/fold_constants.h"

namespace nimble {

struct PassOptions {
  FoldConstantsOptions fold_constants;
  std::vector<std::string> disabled;  // passes that do not run, by name
#ifdef NDEBUG
  bool verify = false;
#else
  bool verify = true;  // the graph after every pass; slow
#endif
  // Called with the graph as text: as it was given ("imported"), and after every pass.
  std::function<void(const std::string& pass, const std::string& graph)> dump;
};

struct PassRecord {
  std::string name;
  double ms = 0;
  size_t ops_before = 0;
  size_t ops_after = 0;
};

// The names of all passes, in the order in which they run.
std::vector<std::string> pass_names();

// Turns the ops of ours as imported into fewer and better ones. UserError: `disabled` names no
// pass. InternalError: `verify` found a fault; it says after which pass.
std::vector<PassRecord> run_passes(Graph& graph, const PassOptions& options = {});

}  // namespace nimble
