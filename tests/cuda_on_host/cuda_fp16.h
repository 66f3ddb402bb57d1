// What a kernel needs of CUDA, for a compiler of C++, which runs one thread after the other.
#include <cstring>

#define __global__
#define __device__ static
static struct { unsigned x; } blockIdx, blockDim, threadIdx;

typedef _Float16 __half;  // it converts to float32 and back, rounded to nearest, as CUDA's own class
