//! P and Q arithmetic: generate, update, recover, with kernels chosen at run time.
