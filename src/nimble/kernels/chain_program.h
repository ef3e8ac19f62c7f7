#pragma once

#include <vector>

#include "nimble/kernels/chain_steps.h"

namespace nimble {

// A chain as loops over dense runs: steps that fit into one loop are joined, and steps nobody needs
// are gone. Registers keep their numbers; the one a loop makes is `result`.
struct ChainProgramLoop {
  ChainLoop loop;
  int result = -1;
};
std::vector<ChainProgramLoop> chain_program(const Chain& chain);

// The registers a loop reads, -1 for none.
struct ChainReads {
  int registers[3];
  bool reads(int value) const {
    return registers[0] == value || registers[1] == value || registers[2] == value;
  }
};
ChainReads reads_of(const ChainLoop& loop);

}  // namespace nimble
