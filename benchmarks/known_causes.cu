// Small kernels with one known fault each, to be profiled: is the report's first finding the fault?
//
//     nvcc -O3 -std=c++17 -lineinfo -arch=native -o known_causes benchmarks/known_causes.cu
//     ./known_causes                                   # lists the names
//     for name in $(./known_causes); do
//       ncu --set full --import-source on --clock-control none --profile-from-start off -f -o $name ./known_causes $name
//     done
//     ncu --metrics dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sector_hit_rate.pct \
//         --clock-control none --profile-from-start off -f -o few_metrics ./known_causes copy_at_roof
//     nsys profile -t cuda -c cudaProfilerApi -f true -o unfused_timeline ./known_causes unfused
//     nsys export --type sqlite -f true unfused_timeline.nsys-rep
//     python benchmarks/known_causes.py *.ncu-rep *.sqlite
//
// Each run launches its kernels twice between cudaProfilerStart and cudaProfilerStop: two launches of one shape, as a
// server's kernels come more than once. Needs 4 GiB of GPU memory and compute capability 8.0.

#include <cuda_bf16.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
static T* device(size_t count) {
  T* pointer = nullptr;
  check(cudaMalloc(&pointer, count * sizeof(T)), "cudaMalloc");
  check(cudaMemset(pointer, 0, count * sizeof(T)), "cudaMemset");
  return pointer;
}

static int multiprocessors() {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  return count;
}

constexpr size_t kMany = size_t{1} << 28;  // floats: 1 GiB, more than any cache
constexpr unsigned kRows = kMany / 32;

// -- memory -----------------------------------------------------------------------------------------------------

// Healthy: wide, coalesced, enough of them. Only fewer bytes would make it faster.
__global__ void copy_at_roof(const float4* in, float4* out, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    out[i] = in[i];
  }
}

// Neighbouring threads read addresses a row apart: each load of four bytes moves a sector of 32.
__global__ void uncoalesced_loads(const float* in, float* out, int rows, int columns) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int column = blockIdx.y;
  out[size_t(column) * rows + row] = in[size_t(row) * columns + column] * 2.0f;
}

// The same for stores.
__global__ void uncoalesced_stores(const float* in, float* out, int rows, int columns) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int column = blockIdx.y;
  out[size_t(row) * columns + column] = in[size_t(column) * rows + row] * 2.0f;
}

// One byte a thread: the memory pipeline is busy with instructions, not with bytes.
__global__ void narrow_accesses(const unsigned char* in, unsigned char* out, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    out[i] = in[i] + 1;
  }
}

// All lanes of a warp hit one bank of shared memory, again and again.
__global__ void bank_conflicts(float* out, int rounds) {
  __shared__ float tile[32 * 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) tile[i] = float(i);
  __syncthreads();
  float sum = 0.0f;
  for (int round = 0; round < rounds; ++round) sum += tile[lane * 32 + ((warp + round) & 31)];
  out[blockIdx.x * size_t{blockDim.x} + threadIdx.x] = sum;
}

// A row of 128 bytes for each warp, and which one is next stands in the row: loads wait for each other.
__device__ unsigned chase(const unsigned* next, unsigned row) { return next[size_t(row) * 32 + threadIdx.x % 32]; }
__device__ unsigned first_row() { return (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 7919u % kRows; }

// All warps that the GPU holds, and still each waits for its own loads.
__global__ void dependent_loads(const unsigned* next, unsigned* out, int steps) {
  unsigned at = first_row();
  for (int step = 0; step < steps; ++step) at = chase(next, at);
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

// The same in blocks of one warp: a multiprocessor takes so many blocks and no more, and stays half empty.
__global__ void tiny_blocks(const unsigned* next, unsigned* out, int steps) {
  unsigned at = first_row();
  for (int step = 0; step < steps; ++step) at = chase(next, at);
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

// Thousands of threads add to eight counters.
__global__ void contended_atomics(const unsigned char* in, float* counters, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    atomicAdd(&counters[(in[i] + threadIdx.x) & 7], 1.0f);
  }
}

// -- occupancy --------------------------------------------------------------------------------------------------

// 160 live values a thread leave room for few warps, and what those wait for are loads that depend on each other.
__global__ void __launch_bounds__(128) too_many_registers(const unsigned* next, float* out, int steps) {
  constexpr int kLive = 160;
  float live[kLive];
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kLive; ++i) live[i] = float(thread + i);
  unsigned at = first_row();
  for (int step = 0; step < steps; ++step) {
    at = chase(next, at);
    const float value = float(at);
#pragma unroll
    for (int i = 0; i < kLive; ++i) live[i] += value;
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kLive; ++i) sum += live[i] * float(i);
  out[thread] = sum;
}

// A block of two warps takes 90 KiB of shared memory.
__global__ void too_much_shared_memory(const unsigned* next, unsigned* out, int steps) {
  extern __shared__ unsigned scratch[];
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  scratch[threadIdx.x] = thread;
  __syncthreads();
  unsigned at = first_row();
  for (int step = 0; step < steps; ++step) at = chase(next, at);
  out[thread] = at + scratch[threadIdx.x ^ 1];
}

// Eight blocks on a GPU of a hundred multiprocessors.
__global__ void small_grid(const float4* in, float4* out, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    out[i] = in[i];
  }
}

// One block more than fit at once: while the last one runs, the rest of the GPU rests.
__global__ void __launch_bounds__(1024) one_block_too_many(float* out, int rounds) {
  float value = float(threadIdx.x);
  for (int round = 0; round < rounds; ++round) value = fmaf(value, 0.999f, 0.001f);
  out[blockIdx.x * size_t{blockDim.x} + threadIdx.x] = value;
}

// 32 registers are allowed and 96 are needed: the rest lives in local memory.
__global__ void __launch_bounds__(1024, 2) register_spills(const float* in, float* out, int rounds) {
  constexpr int kLive = 96;
  float live[kLive];
  const size_t thread = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kLive; ++i) live[i] = in[thread + i];
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kLive; ++i) live[i] = fmaf(live[i], live[(i + 37) % kLive], 1e-3f);
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kLive; ++i) sum += live[i];
  out[thread] = sum;
}

// -- computing --------------------------------------------------------------------------------------------------

// A GEMM with register tiles, on the FP32 pipes: tensor cores would do this many times faster.
__global__ void __launch_bounds__(256) sgemm_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float a_tile[16][128 + 4], b_tile[16][128];
  const int row0 = blockIdx.y * 128, column0 = blockIdx.x * 128;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sums[8][8] = {};
  for (int k0 = 0; k0 < n; k0 += 16) {
    for (int i = threadIdx.x; i < 128 * 16; i += 256) {
      a_tile[i % 16][i / 16] = a[size_t(row0 + i / 16) * n + k0 + i % 16];
      b_tile[i / 128][i % 128] = b[size_t(k0 + i / 128) * n + column0 + i % 128];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      float left[8], right[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        left[i] = a_tile[k][ty * 8 + i];
        right[i] = b_tile[k][tx + 16 * i];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) c[size_t(row0 + ty * 8 + i) * n + column0 + tx + 16 * j] = sums[i][j];
}

// One chain of multiply-adds a thread and one warp a scheduler: each waits for the one before.
__global__ void dependent_chain(float* out, int rounds) {
  float value = float(threadIdx.x);
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 16; ++i) value = fmaf(value, 0.999f, 0.001f);
  }
  out[blockIdx.x * size_t{blockDim.x} + threadIdx.x] = value;
}

// Every lane of a warp takes a path of its own, one after the other.
__global__ void divergent_branches(float* out, int rounds) {
  float value = float(threadIdx.x) * 1e-3f;
  const int lane = threadIdx.x % 32;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll 1
    for (int path = 0; path < 32; ++path) {
      if (lane == path) {
#pragma unroll
        for (int i = 0; i < 32; ++i) value = fmaf(value, 0.99f, float(i) * 1e-3f);
      }
    }
  }
  out[blockIdx.x * size_t{blockDim.x} + threadIdx.x] = value;
}

// Exponentials, sines and roots: the special-function unit is a quarter as wide as the others.
__global__ void special_functions(float* out, int rounds) {
  float a = float(threadIdx.x) * 1e-3f, b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
  for (int round = 0; round < rounds; ++round) {
    a = __sinf(a) + __expf(-b), b = __cosf(b) + __frsqrt_rn(c + 9.0f);
    c = __sinf(c) + __expf(-d), d = __cosf(d) + __frsqrt_rn(a + 9.0f);
  }
  out[blockIdx.x * size_t{blockDim.x} + threadIdx.x] = a + b + c + d;
}

// Double precision where single would do: half as fast on data-centre GPUs, 1/64 on the others.
__global__ void double_precision(double* out, int rounds) {
  double sums[8];
  for (int i = 0; i < 8; ++i) sums[i] = double(threadIdx.x + i);
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = fma(sums[i], 0.999, 0.001);
  double sum = 0.0;
  for (int i = 0; i < 8; ++i) sum += sums[i];
  out[blockIdx.x * size_t{blockDim.x} + threadIdx.x] = sum;
}

// One warp works between two barriers; 31 wait for it.
__global__ void __launch_bounds__(1024) barriers(float* out, int rounds) {
  __shared__ float shared;
  float value = float(threadIdx.x);
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x < 32) {
      for (int i = 0; i < 64; ++i) value = fmaf(value, 0.999f, 0.001f);
      if (threadIdx.x == 0) shared = value;
    }
    __syncthreads();
    value += shared;
    __syncthreads();
  }
  out[blockIdx.x * size_t{blockDim.x} + threadIdx.x] = value;
}

// -- a stream of small kernels ----------------------------------------------------------------------------------

__global__ void to_float_kernel(const __nv_bfloat16* in, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __bfloat162float(in[i]);
}
__global__ void to_bfloat16_kernel(const float* in, __nv_bfloat16* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __float2bfloat16(in[i]);
}
__global__ void elementwise_add_kernel(const float* a, const float* b, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = a[i] + b[i];
}
__global__ void elementwise_mul_kernel(const float* a, const float* b, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = a[i] * b[i];
}
__global__ void silu_kernel(const float* in, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] / (1.0f + __expf(-in[i]));
}

// -- who runs what ----------------------------------------------------------------------------------------------

// A linear congruential sequence over all rows: every step lands elsewhere.
__global__ void fill_rows(unsigned* next) {
  for (unsigned row = blockIdx.x * blockDim.x + threadIdx.x; row < kRows; row += gridDim.x * blockDim.x)
    for (int lane = 0; lane < 32; ++lane) next[size_t(row) * 32 + lane] = (row * 1664525u + 1013904223u) % kRows;
}

static unsigned* rows() {
  static unsigned* next = [] {
    unsigned* made = device<unsigned>(kMany);
    fill_rows<<<256, 256>>>(made);
    return made;
  }();
  return next;
}

using Launch = std::function<void()>;

static Launch strided(void (*kernel)(const float*, float*, int, int)) {
  float *in = device<float>(kMany / 4), *out = device<float>(kMany / 4);
  return [=] { kernel<<<dim3(8192 / 256, 8192), 256>>>(in, out, 8192, 8192); };
}

static Launch unfused() {
  constexpr int kCount = 1 << 23;
  __nv_bfloat16 *in = device<__nv_bfloat16>(kCount), *out = device<__nv_bfloat16>(kCount);
  float *a = device<float>(kCount), *b = device<float>(kCount), *c = device<float>(kCount);
  return [=] {
    for (int layer = 0; layer < 8; ++layer) {
      to_float_kernel<<<kCount / 256, 256>>>(in, a, kCount);
      elementwise_mul_kernel<<<kCount / 256, 256>>>(a, b, c, kCount);
      elementwise_add_kernel<<<kCount / 256, 256>>>(c, a, b, kCount);
      silu_kernel<<<kCount / 256, 256>>>(b, c, kCount);
      to_bfloat16_kernel<<<kCount / 256, 256>>>(c, out, kCount);
    }
  };
}

static const std::map<std::string, std::function<Launch()>>& programs() {
  static const int sms = multiprocessors();
  static const std::map<std::string, std::function<Launch()>> all = {
      {"copy_at_roof",
       [] {
         float4 *in = device<float4>(kMany / 4), *out = device<float4>(kMany / 4);
         return [=] { copy_at_roof<<<sms * 16, 512>>>(in, out, kMany / 4); };
       }},
      {"uncoalesced_loads", [] { return strided(uncoalesced_loads); }},
      {"uncoalesced_stores", [] { return strided(uncoalesced_stores); }},
      {"narrow_accesses",
       [] {
         auto *in = device<unsigned char>(kMany), *out = device<unsigned char>(kMany);
         return [=] { narrow_accesses<<<sms * 16, 512>>>(in, out, kMany); };
       }},
      {"bank_conflicts",
       [] {
         float* out = device<float>(size_t(sms) * 8 * 256);
         return [=] { bank_conflicts<<<sms * 8, 256>>>(out, 4096); };
       }},
      {"dependent_loads",
       [] {
         unsigned *next = rows(), *out = device<unsigned>(size_t(sms) * 32 * 256);
         return [=] { dependent_loads<<<sms * 32, 256>>>(next, out, 64); };
       }},
      {"tiny_blocks",
       [] {
         unsigned *next = rows(), *out = device<unsigned>(size_t(sms) * 128 * 32);
         return [=] { tiny_blocks<<<sms * 128, 32>>>(next, out, 64); };
       }},
      {"contended_atomics",
       [] {
         auto* in = device<unsigned char>(kMany / 16);
         float* counters = device<float>(8);
         return [=] { contended_atomics<<<sms * 8, 256>>>(in, counters, kMany / 16); };
       }},
      {"too_many_registers",
       [] {
         unsigned* next = rows();
         float* out = device<float>(size_t(sms) * 32 * 128);
         return [=] { too_many_registers<<<sms * 32, 128>>>(next, out, 64); };
       }},
      {"too_much_shared_memory",
       [] {
         unsigned *next = rows(), *out = device<unsigned>(size_t(sms) * 32 * 64);
         constexpr int kShared = 90 * 1024;
         check(cudaFuncSetAttribute(too_much_shared_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
               "cudaFuncSetAttribute");
         return [=] { too_much_shared_memory<<<sms * 32, 64, kShared>>>(next, out, 256); };
       }},
      {"small_grid",
       [] {
         float4 *in = device<float4>(kMany / 16), *out = device<float4>(kMany / 16);
         return [=] { small_grid<<<8, 256>>>(in, out, kMany / 16); };
       }},
      {"one_block_too_many",
       [] {
         float* out = device<float>((size_t(sms) * 2 + 1) * 1024);
         return [=] { one_block_too_many<<<sms * 2 + 1, 1024>>>(out, 4096); };
       }},
      {"register_spills",
       [] {
         float *in = device<float>(size_t(sms) * 8 * 1024 + 1024), *out = device<float>(size_t(sms) * 8 * 1024);
         return [=] { register_spills<<<sms * 8, 1024>>>(in, out, 16); };
       }},
      {"sgemm_tiled",
       [] {
         float *a = device<float>(4096 * 4096), *b = device<float>(4096 * 4096), *c = device<float>(4096 * 4096);
         return [=] { sgemm_tiled<<<dim3(32, 32), 256>>>(a, b, c, 4096); };
       }},
      {"dependent_chain",
       [] {
         float* out = device<float>(size_t(sms) * 128);
         return [=] { dependent_chain<<<sms, 128>>>(out, 8192); };
       }},
      {"divergent_branches",
       [] {
         float* out = device<float>(size_t(sms) * 16 * 256);
         return [=] { divergent_branches<<<sms * 16, 256>>>(out, 8); };
       }},
      {"special_functions",
       [] {
         float* out = device<float>(size_t(sms) * 16 * 256);
         return [=] { special_functions<<<sms * 16, 256>>>(out, 2048); };
       }},
      {"double_precision",
       [] {
         double* out = device<double>(size_t(sms) * 16 * 256);
         return [=] { double_precision<<<sms * 16, 256>>>(out, 2048); };
       }},
      {"barriers",
       [] {
         float* out = device<float>(size_t(sms) * 8 * 1024);
         return [=] { barriers<<<sms * 8, 1024>>>(out, 256); };
       }},
      {"unfused", [] { return unfused(); }},
  };
  return all;
}

int main(int count, char** arguments) {
  if (count != 2) {
    for (const auto& program : programs()) std::printf("%s\n", program.first.c_str());
    return count == 1 ? 0 : 2;
  }
  const auto program = programs().find(arguments[1]);
  if (program == programs().end()) {
    std::fprintf(stderr, "%s: no such kernel; without an argument all names are listed\n", arguments[1]);
    return 2;
  }
  const Launch launch = program->second();
  check(cudaDeviceSynchronize(), "set-up");
  check(cudaProfilerStart(), "cudaProfilerStart");
  for (int repeat = 0; repeat < 2; ++repeat) {
    launch();
    check(cudaGetLastError(), "launch");
  }
  check(cudaDeviceSynchronize(), arguments[1]);
  check(cudaProfilerStop(), "cudaProfilerStop");
  std::printf("%s ran\n", arguments[1]);
  return 0;
}
