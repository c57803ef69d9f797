//! A list of counters: names separated by commas, which may also stand inside `unit/terms/`.

/// The names in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

/// Splits a list at the commas that are not between slashes.
pub fn parse_counters(list: &str) -> Result<Names, String> {
    let mut names = Vec::new();
    let mut name = String::new();
    for c in list.chars() {
        let is_inside = name.matches('/').count() == 1;
        if c == ',' && !is_inside {
            names.push(std::mem::take(&mut name));
        } else {
            name.push(c);
        }
    }
    if name.matches('/').count() == 1 {
        return Err(format!("`{name}` has no second `/`"));
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    Ok(Names(names))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn commas_inside_the_terms_of_a_unit_do_not_split() {
        let names = |list| parse_counters(list).unwrap().0;
        assert_eq!(names("msr/tsc/,task-clock"), ["msr/tsc/", "task-clock"]);
        assert_eq!(names("cpu/event=1,umask=2/u,cycles:u,"), ["cpu/event=1,umask=2/u", "cycles:u"]);
        assert_eq!(names(""), Vec::<String>::new());
        assert_eq!(parse_counters("cpu/event=1,cycles").unwrap_err(), "`cpu/event=1,cycles` has no second `/`");
    }
}
