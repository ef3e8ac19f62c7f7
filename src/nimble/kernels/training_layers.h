#pragma once

#include <cstdint>
#include <vector>

namespace nimble::cases {

// A convolution of a network that is trained on images of 32x32 in batches of 32.
struct TrainingLayer {
  int64_t size, in, out;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t groups = 1;
};

// Of ResNet-50, MobileNetV2 and EfficientNet-B0, each shape once; first layers first.
inline const std::vector<TrainingLayer>& training_layers() {
  static const std::vector<TrainingLayer> layers = {
      {32, 3, 64, 7, 2},  // ResNet-50
      {32, 3, 32, 3, 2},  // the others
      {8, 64, 64},
      {8, 64, 64, 3},
      {8, 64, 256},
      {8, 256, 64},
      {8, 256, 128},
      {8, 128, 128, 3, 2},
      {8, 256, 512, 1, 2},
      {4, 128, 128, 3},
      {4, 128, 512},
      {4, 512, 128},
      {4, 256, 256, 3, 2},
      {4, 512, 1024, 1, 2},
      {2, 256, 256, 3},
      {2, 256, 1024},
      {2, 1024, 256},
      {2, 512, 512, 3, 2},
      {2, 1024, 2048, 1, 2},
      {1, 512, 512, 3},
      {1, 512, 2048},
      {1, 2048, 512},
      {16, 32, 16},  // MobileNetV2
      {16, 16, 96},
      {8, 96, 24},
      {8, 24, 144},
      {4, 192, 32},
      {2, 64, 384},
      {2, 576, 96},
      {1, 160, 960},
      {1, 960, 160},
      {1, 320, 1280},
      {16, 32, 32, 3, 1, 32},
      {16, 96, 96, 3, 2, 96},
      {8, 144, 144, 3, 1, 144},
      {4, 192, 192, 3, 1, 192},
      {2, 384, 384, 3, 1, 384},
      {2, 576, 576, 3, 2, 576},
      {1, 960, 960, 3, 1, 960},
      {8, 144, 144, 5, 2, 144},  // EfficientNet-B0
      {4, 240, 240, 5, 1, 240},
      {2, 672, 672, 5, 1, 672},
      {1, 1152, 1152, 5, 1, 1152},
  };
  return layers;
}
inline constexpr int64_t kTrainingBatch = 32;

}  // namespace nimble::cases
