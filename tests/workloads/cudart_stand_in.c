/* libcudart.so.12 as far as its calls are counted: it calls the driver, as the real one does. */
int cuLaunchKernel(void), cuGraphLaunch(void), cuStreamSynchronize(void), cuEventQuery(void *event);

int cudaLaunchKernel(void) { return cuLaunchKernel(); }
int cudaGraphLaunch(void) { return cuGraphLaunch(); }
int cudaEventQuery(void *event) { return cuEventQuery(event); }
int cudaStreamSynchronize(void) { return cuStreamSynchronize(); }
