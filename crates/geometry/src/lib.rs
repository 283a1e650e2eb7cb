//! Where bytes live: md's levels and layouts as arithmetic, and nothing else.
