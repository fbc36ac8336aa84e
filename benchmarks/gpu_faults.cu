// Kernels that end in one known fault each: what a GPU core dump must tell of them.
//
//     nvcc -lineinfo -arch=native -o gpu_faults benchmarks/gpu_faults.cu
//     ./gpu_faults                                     # lists the names
//     for name in $(./gpu_faults); do
//       CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=$name.nvcudmp \
//         CUDA_COREDUMP_GENERATION_FLAGS=skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory ./gpu_faults $name
//       cuda-gdb -batch -ex "target cudacore $name.nvcudmp" -ex "info cuda kernels" -ex "info cuda sms" \
//         -ex "info cuda warps" -ex "info cuda lanes" -ex "info registers" -ex "x/4i \$pc" > $name.cuda-gdb.txt
//     done
//
// The program ends by SIGABRT once its core is written, or by itself after 10 s. One thread of many fails (block 3, thread 37, where the fault is a
// thread's), so that which one it was can be checked.

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cassert>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace cg = cooperative_groups;

__device__ bool chosen() { return blockIdx.x == 3 && threadIdx.x == 37; }

// In assembly: the compiler takes out what it sees to be undefined.
__device__ void store(unsigned long long address) { asm volatile("st.global.f32 [%0], 1.0;" ::"l"(address)); }
__device__ float load(unsigned long long address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}

__global__ void null_store(float* p) {
  p[threadIdx.x] = 1.0f;
  if (chosen()) store(0);
}
__global__ void null_load(float* p) {
  if (chosen()) p[0] = load(16);
}
__global__ void far_store(float* p) {
  if (chosen()) store(0x7e0000000000ull);
}
__global__ void freed_load(float* p, float* gone) {
  if (chosen()) p[0] = load(reinterpret_cast<unsigned long long>(gone + 5));
}
__global__ void generic_store(float* p) {
  if (chosen()) asm volatile("st.f32 [%0], 1.0;" ::"l"(0x7e0000000000ull));
}
__global__ void misaligned_load_of_four(float* p) {
  float a, b, c, d;
  if (chosen()) {
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(p + 1));
    p[0] = a + b + c + d;
  }
}
__global__ void misaligned_store(float* p) {
  if (chosen()) *reinterpret_cast<volatile float*>(reinterpret_cast<char*>(p) + 1) = 1.0f;
}
__global__ void misaligned_vector(float* p) {
  if (chosen()) *reinterpret_cast<volatile double*>(p + 1) = 1.0;
}
__global__ void misaligned_atomic(int* p) {
  if (chosen()) atomicAdd(reinterpret_cast<int*>(reinterpret_cast<char*>(p) + 2), 1);
}
__global__ void null_atomic(float* p) {
  if (chosen()) asm volatile("red.global.add.f32 [%0], 1.0;" ::"l"(64ull));
}
__global__ void shared_beyond(float* p, int index) {
  __shared__ float tile[64];
  tile[threadIdx.x & 63] = 1.0f;
  __syncthreads();
  if (chosen()) reinterpret_cast<volatile float*>(tile)[index] = 2.0f;
  p[threadIdx.x] = tile[threadIdx.x & 63];
}
__global__ void shared_misaligned(float* p) {
  __shared__ float tile[64];
  if (chosen()) *reinterpret_cast<volatile float*>(reinterpret_cast<char*>(tile) + 2) = 2.0f;
  p[threadIdx.x] = tile[0];
}
__global__ void shared_atomic_misaligned(int* p) {
  __shared__ int tile[64];
  tile[threadIdx.x & 63] = 0;
  if (chosen()) {
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(tile)) + 1;
    asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(at));
  }
  __syncthreads();
  p[threadIdx.x] = tile[0];
}
__device__ __noinline__ int deep(int n, volatile int* p) {
  volatile int frame[64];
  frame[n & 63] = n;
  return deep(n + 1, p) + frame[n & 63] + p[0];
}
__global__ void stack_overflow(int* p) {
  if (chosen()) p[0] = deep(0, p);
}
__global__ void assertion(int* p) { assert(!chosen() && "block 3, thread 37"); }
__global__ void trap(int* p) {
  if (chosen()) __trap();
}
__global__ void breakpoint(int* p) {
  if (chosen()) __brkpt();
}
using Function = void (*)(int*);
__global__ void bad_function(int* p, Function f) {
  if (chosen()) f(p);
}
__global__ void generic_shared_window(int* p) {
  __shared__ int tile[32];
  tile[threadIdx.x & 31] = 0;
  if (chosen()) *reinterpret_cast<volatile int*>(reinterpret_cast<char*>(tile) + (1 << 20)) = 1;
  p[threadIdx.x] = tile[0];
}
__global__ void __cluster_dims__(2, 1, 1) cluster_beyond(int* p) {
  __shared__ int tile[32];
  auto cluster = cg::this_cluster();
  tile[threadIdx.x & 31] = 0;
  cluster.sync();
  if (chosen()) reinterpret_cast<volatile int*>(cluster.map_shared_rank(tile, 1))[1 << 18] = 1;
  cluster.sync();
  p[threadIdx.x] = tile[0];
}
__global__ void async_copy_null(int* p) {
  __shared__ __align__(16) int tile[32];
  if (chosen()) {
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(256ll));
    asm volatile("cp.async.wait_all;");
  }
  __syncthreads();
  p[threadIdx.x] = tile[0];
}

int main(int argc, char** argv) {
  constexpr int blocks = 8, threads = 64;
  float* p = nullptr;
  float* gone = nullptr;
  if (argc > 1) {
    cudaMalloc(&p, 1 << 20);
    cudaMalloc(&gone, 2ull << 30);
    cudaFree(gone);
  }
  int* ints = reinterpret_cast<int*>(p);
  const std::map<std::string, std::function<void()>> faults{
      {"null_store", [&] { null_store<<<blocks, threads>>>(p); }},
      {"null_load", [&] { null_load<<<blocks, threads>>>(p); }},
      {"far_store", [&] { far_store<<<blocks, threads>>>(p); }},
      {"freed_load", [&] { freed_load<<<blocks, threads>>>(p, gone); }},
      {"misaligned_store", [&] { misaligned_store<<<blocks, threads>>>(p); }},
      {"misaligned_vector", [&] { misaligned_vector<<<blocks, threads>>>(p); }},
      {"misaligned_atomic", [&] { misaligned_atomic<<<blocks, threads>>>(ints); }},
      {"null_atomic", [&] { null_atomic<<<blocks, threads>>>(p); }},
      {"shared_beyond", [&] { shared_beyond<<<blocks, threads>>>(p, 1 << 20); }},
      {"shared_misaligned", [&] { shared_misaligned<<<blocks, threads>>>(p); }},
      {"shared_atomic_misaligned", [&] { shared_atomic_misaligned<<<blocks, threads>>>(ints); }},
      {"generic_store", [&] { generic_store<<<blocks, threads>>>(p); }},
      {"misaligned_load_of_four", [&] { misaligned_load_of_four<<<blocks, threads>>>(p); }},
      {"stack_overflow", [&] { stack_overflow<<<blocks, threads>>>(ints); }},
      {"assertion", [&] { assertion<<<blocks, threads>>>(ints); }},
      {"trap", [&] { trap<<<blocks, threads>>>(ints); }},
      {"breakpoint", [&] { breakpoint<<<blocks, threads>>>(ints); }},
      {"bad_function", [&] { bad_function<<<blocks, threads>>>(ints, reinterpret_cast<Function>(0x1230)); }},
      {"generic_shared_window", [&] { generic_shared_window<<<blocks, threads>>>(ints); }},
      {"cluster_beyond", [&] { cluster_beyond<<<blocks, threads>>>(ints); }},
      {"async_copy_null", [&] { async_copy_null<<<blocks, threads>>>(ints); }},
  };
  const auto fault = argc > 1 ? faults.find(argv[1]) : faults.end();
  if (fault == faults.end()) {
    for (const auto& [name, launch] : faults) std::printf("%s\n", name.c_str());
    return argc > 1;
  }
  fault->second();
  // The error comes back while the dump is still written, and a program that ends then cuts it short.
  std::this_thread::sleep_for(std::chrono::seconds(10));
  std::printf("%s: %s\n", argv[1], cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
