//! `glibc-hwcaps`: folders with variants of libraries for newer processors.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The variants that this processor can run, best first.
static LEVELS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let v2 = is_x86_feature_detected!("sse4.2")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("cmpxchg16b");
    let v3 = v2
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("movbe");
    let v4 = v3
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let levels = [("x86-64-v4", v4), ("x86-64-v3", v3), ("x86-64-v2", v2)];
    levels.into_iter().filter(|&(_, usable)| usable).map(|(name, _)| name).collect()
});

/// The folder's variants for this processor, best first, then the folder.
pub(super) fn variants(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let variants = folder.join("glibc-hwcaps");
    let plain = folder.to_owned();
    LEVELS.iter().map(move |level| variants.join(level)).chain([plain])
}

/// How good the variant is in which a library lies, 0 where it is in none; `None` if this processor cannot run it.
pub(super) fn rank(path: &Path) -> Option<usize> {
    let mut parts = path.iter().skip_while(|&part| part != "glibc-hwcaps").skip(1);
    let Some(level) = parts.next() else { return Some(0) };
    LEVELS.iter().rev().position(|&usable| level == usable).map(|index| index + 1)
}
