// Comm|Scope 0.12 names the place of memory by a number, as CUDA did before 13.
#pragma once
#include <cuda_runtime.h>

#if CUDART_VERSION >= 13000
static inline cudaMemLocation place(int id) {
  return {id == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, id};
}

static inline cudaError_t cudaMemPrefetchAsync(const void *at, size_t bytes, int id,
                                               cudaStream_t stream = 0) {
  return cudaMemPrefetchAsync(at, bytes, place(id), 0, stream);
}

static inline cudaError_t cudaMemAdvise(const void *at, size_t bytes, cudaMemoryAdvise advice,
                                        int id) {
  return cudaMemAdvise(at, bytes, advice, place(id));
}
#endif
