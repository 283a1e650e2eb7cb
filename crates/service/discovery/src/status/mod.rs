//! How an array is, in words: for `braid status` and `top`, for notices, and for what an API says.

pub mod advice;
#[doc(hidden)]
pub mod sample;
pub mod words;
