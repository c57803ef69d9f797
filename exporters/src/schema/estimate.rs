//! `estimates.parquet`: a row per region of a location, of the calls without a record.

use rtrace_model::Estimate;

use super::cell::row;

row!(Estimate, "estimates.parquet", {
    "location": location,
    "region": region,
    "counted": counted,
    "estimated": estimated,
    "margin": margin,
});
