//! The state of an array in words: for `braid status` and `top`, for notices, and for API values.

pub mod advice;
#[doc(hidden)]
pub mod sample;
pub mod words;
