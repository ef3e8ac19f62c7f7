#include "nimble/passes/pipeline.h"

#include <map>
#include <random>

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

// Inputs and outputs lie row-major here: where kernels want channels last there are copies.
class Pipeline : public PassTest {
 protected:
  std::vector<PassRecord> run_all(NetworkWriter& w) {
    std::vector<PassRecord> records;
    run(w, [&](Graph& graph) {
      PassOptions options;
      options.verify = true;
      records = run_passes(graph, options);
    });
    return records;
  }
};

// As NASNet has it: relu, separable, batch norm twice; two of them added up.
TEST_F(Pipeline, ACellOfSeparableConvolutions) {
  NetworkWriter w;
  const auto separable = [&](const Tensor& x, int64_t kernel) {
    Tensor y = w.depthwise(w.relu(x), kernel);
    y = w.batch_norm(w.convolution(y, 4, 1));
    y = w.depthwise(w.relu(y), kernel);
    return w.batch_norm(w.convolution(y, 4, 1));
  };
  const Tensor image = w.input({1, 3, 6, 6});
  const Tensor x = w.batch_norm(w.convolution(image, 4, 1));
  const Tensor a = w.add(separable(x, 5), separable(x, 3));
  const Tensor b = w.add(w.pool(x, w.pool3x3(Pool::Kind::kAverage)), x);
  const Tensor cell = w.concatenation({x, a, b});
  w.output(w.batch_norm(w.convolution(w.relu(cell), 4, 1)));
  run_all(w);
  EXPECT_EQ(ops(),
            "convolution, "
            "separable convolution groups 4 of relu, 1x1 relu, "
            "separable convolution groups 4, 1x1, "
            "separable convolution groups 4 of relu, 1x1 relu, "
            "relu, "
            "separable convolution groups 4, 1x1 add relu, "
            "average pool 3x3 add relu, "
            "convolution, copy");
}

// As NASNet has it where the image is halved: the second path is shifted by one pixel.
TEST_F(Pipeline, AFactorizedReduction) {
  for (int64_t size : {6, 7}) {
    NetworkWriter w;
    const Tensor x = w.input({1, 3, size, size});
    const Tensor r = w.relu(x);
    const Pool every_second{.kind = Pool::Kind::kAverage, .stride = {2, 2}};
    const Tensor a = w.convolution(w.pool(r, every_second), 2, 1);
    const Tensor shifted = w.pad(r, {0, 0, -1, -1}, {0, 0, 1, 1});
    const Tensor b = w.convolution(w.pool(shifted, every_second), 3, 1);
    w.output(w.batch_norm(w.concatenation({a, b})));
    run_all(w);
    EXPECT_EQ(ops(), "relu, convolution stride 2x2, convolution stride 2x2, copy, copy");
  }
}

// relu, padded at the end by one, a depthwise convolution with stride 2
TEST_F(Pipeline, AnUnevenlyPaddedReduction) {
  NetworkWriter w;
  const Tensor x = w.input({1, 4, 6, 6});
  const auto branch = [&] {
    const Tensor padded = w.pad(w.relu(x), {0, 0, 0, 0}, {0, 0, 1, 1});
    const Tensor y = w.convolution(padded, 4, 3, {.stride = {2, 2}, .groups = 4});
    return w.batch_norm(w.convolution(y, 4, 1));
  };
  w.output(w.add(branch(), branch()));
  run_all(w);
  EXPECT_EQ(ops(),
            "copy, "
            "separable convolution stride 2x2 groups 4 of relu, 1x1, "
            "separable convolution stride 2x2 groups 4 of relu, 1x1 add, "
            "copy");
}

TEST_F(Pipeline, AResidualBlock) {
  NetworkWriter w;
  const Tensor x = w.relu(w.batch_norm(w.convolution(w.input({2, 3, 6, 6}), 4, 3)));
  Tensor y = w.relu(w.batch_norm(w.convolution(x, 4, 3, {.padding = {1, 1}})));
  y = w.batch_norm(w.convolution(y, 4, 3, {.padding = {1, 1}}));
  w.output(w.relu(w.add(y, x)));
  run_all(w);
  EXPECT_EQ(ops(), "convolution relu, convolution relu, convolution add relu, copy");
}

// As EfficientNet has it: expansion, depthwise, squeeze and excitation, projection.
TEST_F(Pipeline, AnInvertedResidualWithSqueezeAndExcitation) {
  NetworkWriter w;
  const Activation silu{ActivationKind::kSilu};
  const Tensor x = w.batch_norm(w.convolution(w.input({2, 3, 6, 6}), 5, 3));
  Tensor y = w.activation(w.batch_norm(w.convolution(x, 10, 1)), silu);
  y = w.activation(w.batch_norm(w.depthwise(y, 3)), silu);
  y = w.batch_norm(w.convolution(w.excited(y, /*scale_first=*/true), 5, 1));
  w.output(w.add(y, x));
  run_all(w);
  EXPECT_EQ(ops(),
            "convolution, convolution silu, convolution groups 10 silu, adaptive average pool, "
            "convolution sigmoid, convolution of scaled add, copy");
  const Op& projection = graph.ops[5];
  EXPECT_EQ(graph.desc_of(projection.operands[0]).strides, (std::vector<int64_t>{160, 1, 40, 10}));
  EXPECT_EQ(graph.desc_of(projection.operands[3]).sizes, (std::vector<int64_t>{2, 10, 4, 4}));
  EXPECT_EQ(graph.desc_of(projection.operands[3]).strides, (std::vector<int64_t>{10, 1, 0, 0}));
}

TEST_F(Pipeline, PassesCanBeSwitchedOffByName) {
  NetworkWriter w;
  w.output(w.relu(w.convolution(w.input({1, 3, 4, 4}), 4, 1)));
  graph = w.finish();
  PassOptions options;
  options.disabled = {"fuse_epilogues"};
  std::vector<std::string> dumped;
  options.dump = [&](const std::string& pass, const std::string&) { dumped.push_back(pass); };
  const auto records = run_passes(graph, options);
  EXPECT_EQ(ops(), "convolution, relu, copy");
  EXPECT_EQ(records.size() + 1, pass_names().size());
  EXPECT_EQ(dumped.size(), records.size() + 1);
  options.disabled = {"fuse_everything"};
  EXPECT_THROW(run_passes(graph, options), UserError);
}

// Grows a network of random layers; every tensor may be read by several.
class RandomNetwork {
 public:
  explicit RandomNetwork(unsigned seed) : random_(seed) {}

  void write(NetworkWriter& w) {
    images_.push_back(w.input({between(1, 2), between(1, 4), between(3, 7), between(3, 7)}));
    rows_.push_back(w.input({between(1, 2), between(1, 4), between(1, 5)}));
    const int64_t layers = between(4, 18);
    for (int64_t i = 0; i < layers; ++i) {
      if (between(0, 4) == 0)
        grow_rows(w);
      else
        grow_image(w);
    }
    for (const auto* tensors : {&images_, &rows_}) {
      for (size_t i = 1; i < tensors->size(); ++i)
        if (i + 1 == tensors->size() || between(0, 7) == 0) w.output((*tensors)[i]);
    }
  }

 private:
  int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  // Late ones more often: real networks are deep.
  const Tensor& pick(const std::vector<Tensor>& tensors) {
    const auto last = static_cast<int64_t>(tensors.size()) - 1;
    return tensors[static_cast<size_t>(std::max(between(0, last), between(0, last)))];
  }
  Activation any_activation() {
    const ActivationKind kinds[] = {ActivationKind::kRelu, ActivationKind::kRelu,
                                    ActivationKind::kSigmoid, ActivationKind::kHardSwish};
    Activation activation{kinds[between(0, 3)]};
    if (between(0, 5) == 0) activation = {ActivationKind::kClamp, -0.5f, 0.5f};
    return activation;
  }

  // Another tensor of the same sizes as the one given, or that one.
  Tensor same_sizes(const std::vector<Tensor>& tensors, const Tensor& like) {
    std::vector<Tensor> fitting;
    for (const Tensor& t : tensors)
      if (t.desc.sizes == like.desc.sizes) fitting.push_back(t);
    return fitting[static_cast<size_t>(between(0, static_cast<int64_t>(fitting.size()) - 1))];
  }

  void grow_image(NetworkWriter& w) {
    const Tensor x = pick(images_);
    const auto& sizes = x.desc.sizes;
    const int64_t smallest = std::min(sizes[2], sizes[3]);
    switch (between(0, 13)) {
      case 0:
      case 1: {
        const int64_t kernel = smallest >= 3 && between(0, 1) ? 3 : 1;
        const int64_t padding = kernel == 3 ? between(0, 1) : 0;
        const int64_t stride = between(1, 2);
        images_.push_back(w.convolution(x, between(0, 2) ? sizes[1] : between(1, 4), kernel,
                                        {.stride = {stride, stride},
                                         .padding = {padding, padding},
                                         .bias = between(0, 1) == 1}));
        break;
      }
      case 2: {
        const Tensor y = w.depthwise(between(0, 1) ? w.relu(x) : x, 3, between(1, 2));
        images_.push_back(between(0, 3) ? w.convolution(y, sizes[1], 1) : y);
        break;
      }
      case 3:
      case 4:
        images_.push_back(w.batch_norm(x));
        break;
      case 5:
      case 6:
        images_.push_back(w.activation(x, any_activation()));
        break;
      case 7:
      case 8:
        images_.push_back(w.add(x, same_sizes(images_, x)));
        break;
      case 9: {
        Pool pool =
            w.pool3x3(between(0, 1) ? Pool::Kind::kMax : Pool::Kind::kAverage, between(1, 2));
        pool.count_include_pad = between(0, 1) == 1;
        if (between(0, 2) == 0)
          pool = {.kind = Pool::Kind::kAverage, .stride = {2, 2}};
        else if (smallest >= 3 && between(0, 1))
          pool.padding = pool.far_padding = {0, 0};
        images_.push_back(w.pool(x, pool));
        break;
      }
      case 10: {
        std::vector<Tensor> inputs = {x};
        for (int64_t i = between(1, 2); i > 0; --i) inputs.push_back(same_sizes(images_, x));
        if (sizes[1] * static_cast<int64_t>(inputs.size()) <= 16)
          images_.push_back(w.concatenation(inputs));
        break;
      }
      case 11: {
        const auto room = [&](int64_t d) { return sizes[static_cast<size_t>(d)] > 3 ? -1 : 0; };
        const bool zeros = between(0, 2) != 0;
        const Tensor padded = w.pad(x, {0, 0, between(room(2), 1), between(room(3), 1)},
                                    {0, 0, between(0, 1), between(0, 1)}, zeros ? 0.0f : -INFINITY);
        // Infinities cannot be compared once they have met others: a max pool takes them out.
        images_.push_back(zeros ? padded
                                : w.pool(padded, {.kind = Pool::Kind::kMax, .kernel = {2, 2}}));
        break;
      }
      case 12: {
        // A part of an image: the crop of its first row or column.
        Tensor part = x;
        for (size_t d : {2, 3}) {
          if (sizes[d] < 3 || between(0, 1)) continue;
          part.desc.sizes[d] -= 1;
          part.desc.offset += part.desc.strides[d] * between(0, 1);
        }
        images_.push_back(w.scaled(part, 0.5f));
        break;
      }
      case 13: {
        const Tensor y = w.excited(x, between(0, 1) == 1);
        images_.push_back(between(0, 3) ? w.convolution(y, between(1, 4), 1) : y);
        break;
      }
    }
  }

  void grow_rows(NetworkWriter& w) {
    const Tensor x = pick(rows_);
    const auto& sizes = x.desc.sizes;
    switch (between(0, 5)) {
      case 0:
      case 1: {
        // Without the first dim, as linear layers are recorded.
        const Tensor flat = w.reshape(x, {sizes[0] * sizes[1], sizes[2]});
        const Tensor y =
            w.linear(flat, between(0, 1) ? sizes[2] : between(1, 5), between(0, 1) == 1);
        rows_.push_back(w.reshape(y, {sizes[0], sizes[1], y.desc.sizes[1]}));
        break;
      }
      case 2:
        rows_.push_back(w.activation(x, any_activation()));
        break;
      case 3:
        rows_.push_back(w.add(x, same_sizes(rows_, x)));
        break;
      case 4:
        rows_.push_back(w.add(x, w.over_last(w.constant({sizes[2]}), sizes)));
        break;
      case 5:
        rows_.push_back(w.scaled(x, 0.5f));
        break;
    }
  }

  std::mt19937 random_;
  std::vector<Tensor> images_;
  std::vector<Tensor> rows_;
};

TEST_F(Pipeline, RandomProgramsComputeTheSame) {
  std::map<std::string, size_t> changed;  // by pass: in how many programs it did something
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    NetworkWriter w;
    RandomNetwork(seed).write(w);
    for (const PassRecord& record : run_all(w))
      if (record.ops_before != record.ops_after) ++changed[record.name];
    if (HasFailure()) return;
  }
  // Else the programs are no test of it.
  for (const char* pass :
       {"remove_dead_ops", "merge_equal_ops", "fold_constants", "distribute_over_concatenation",
        "fold_batch_norm", "fuse_subsampling", "fuse_padding", "fuse_epilogues", "fuse_input_relu",
        "fuse_input_scale", "fuse_separable", "choose_layout", "place_concatenations",
        "fuse_chains"})
    EXPECT_GT(changed[pass], 0u) << pass;
}

}  // namespace
}  // namespace nimble::testing
