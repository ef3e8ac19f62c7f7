// A network with four branches, in a C++ program without Python: eager and as Nimble replays it.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nimble/torch/nimble.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

constexpr int64_t kChannels = 32;
constexpr int kBranches = 4;
constexpr int kBlocks = 6;

struct Branch {
  at::Tensor reduce;  // 1x1
  at::Tensor conv;    // 3x3
  at::Tensor bias;
};

std::vector<Branch> make_weights() {
  std::vector<Branch> branches;
  for (int i = 0; i < kBlocks * kBranches; ++i)
    branches.push_back({at::randn({kChannels, kChannels, 1, 1}) * 0.1,
                        at::randn({kChannels / kBranches, kChannels, 3, 3}) * 0.1,
                        at::randn({kChannels / kBranches})});
  return branches;
}

// Each block: four branches of two convolutions, joined, and added to the block's input.
Tensors forward(const std::vector<Branch>& weights, const Tensors& inputs) {
  at::Tensor x = inputs[0];
  for (int block = 0; block < kBlocks; ++block) {
    Tensors joined;
    for (int i = 0; i < kBranches; ++i) {
      const Branch& branch = weights[block * kBranches + i];
      at::Tensor y = at::relu(at::conv2d(x, branch.reduce));
      joined.push_back(at::conv2d(y, branch.conv, branch.bias, /*stride=*/1, /*padding=*/1));
    }
    x = at::relu(x + at::cat(joined, /*dim=*/1));
  }
  return {x.mean({2, 3})};
}

double seconds(const Function& function, const Tensors& inputs) {
  const auto begin = std::chrono::steady_clock::now();
  function(inputs);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int main() {
  const at::NoGradGuard no_gradients;
  at::manual_seed(0);
  const std::vector<Branch> weights = make_weights();
  const Function eager = [&](const Tensors& inputs) { return forward(weights, inputs); };
  const auto make_input = [] { return Tensors{at::randn({1, kChannels, 28, 28})}; };

  auto step = nimble::record(eager, make_input(), nimble::Options{});

  // New values, not those it was recorded with.
  bool equal = true;
  for (int i = 0; i < 3; ++i) {
    const Tensors inputs = make_input();
    equal &= at::allclose(step(inputs)[0], eager(inputs)[0], /*rtol=*/1e-4, /*atol=*/1e-5);
  }

  // In turn and in both orders, so that both see the same machine; for about two seconds. The
  // quartiles say what the ratio is worth: on a busy machine even equal programs differ.
  const Tensors inputs = make_input();
  const Function replay = [&](const Tensors& x) { return step(x); };
  std::vector<double> ratios;
  double spent = 0;
  while (ratios.size() < 5 || (spent < 2 && ratios.size() < 200)) {
    double eager_time = seconds(eager, inputs);
    const double replay_time = seconds(replay, inputs) + seconds(replay, inputs);
    eager_time += seconds(eager, inputs);
    ratios.push_back(eager_time / replay_time);
    spent += eager_time + replay_time;
  }
  std::sort(ratios.begin(), ratios.end());
  const size_t n = ratios.size();
  std::printf("eager time / nimble time: %.2f (quartiles %.2f to %.2f, %zu rounds)\n",
              ratios[n / 2], ratios[n / 4], ratios[n * 3 / 4], n);
  std::puts(equal ? "equal" : "NOT equal");
  return equal ? 0 : 1;
}
