//! `rtrace man`: the manual pages, for packages. It is hidden from the help because users read the pages with `man`.

use std::fs;

use anyhow::Context as _;

use super::Outcome;
use super::args::{self, Man};

/// Writes a page for rtrace and one for each verb into a folder.
pub fn man(options: &Man) -> anyhow::Result<Outcome> {
    let folder = &options.folder;
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(args::command(), folder))
        .with_context(|| format!("failed to write manual pages to `{}`", folder.display()))?;
    Ok(Outcome::Complete)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_verb_has_a_page_with_its_examples() {
        let folder = tempfile::tempdir().unwrap();
        man(&Man { folder: folder.path().join("man1") }).unwrap();
        for verb in args::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let page = folder.path().join("man1").join(format!("rtrace-{}.1", verb.get_name()));
            assert!(fs::read_to_string(&page).unwrap().contains("EXAMPLES:"), "{}", page.display());
        }
        assert!(fs::read_to_string(folder.path().join("man1/rtrace.1")).unwrap().contains("rtrace\\-attach(1)"));
        assert!(!folder.path().join("man1/rtrace-man.1").exists());
    }
}
