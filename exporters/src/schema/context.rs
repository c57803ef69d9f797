//! `contexts.parquet`: the untraced functions that led to calls.

use rtrace_model::Context;

use super::cell::row;

row!(Context, "contexts.parquet", {
    "context": id,
    "call_sites": sites,
    "incomplete": ending,
});
