/* libcudart.so.12 as far as its calls are counted: it calls the driver, as the real one does. */
int cuLaunchKernel(void), cuGraphLaunch(void), cuStreamSynchronize(void);

int cudaLaunchKernel(void) { return cuLaunchKernel(); }
int cudaGraphLaunch(void) { return cuGraphLaunch(); }
int cudaStreamSynchronize(void) { return cuStreamSynchronize(); }
