//! Functions of the C library that do nothing but their work and return, or end the program.
//!
//! The criterion is that of glibc's own headers, which mark a function `__THROW` if it throws
//! nothing, is no cancellation point and calls nothing back. Of these, the ones that compute or
//! allocate are named; what returns twice, switches stacks or waits for others is left out.

/// Whether the C library's function of that name is one of them.
pub fn returns(name: &str) -> bool {
    NAMES.contains(&name)
}

const NAMES: &[&str] = &[
    // Memory and strings.
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "memchr",
    "memrchr",
    "rawmemchr",
    "memmem",
    "mempcpy",
    "memccpy",
    "bcmp",
    "bcopy",
    "bzero",
    "explicit_bzero",
    "__mempcpy",
    "__rawmemchr",
    "strlen",
    "strnlen",
    "strcmp",
    "strncmp",
    "strcasecmp",
    "strncasecmp",
    "strchr",
    "strrchr",
    "strchrnul",
    "strstr",
    "strcasestr",
    "strpbrk",
    "strspn",
    "strcspn",
    "strcpy",
    "strncpy",
    "stpcpy",
    "stpncpy",
    "__stpcpy",
    "strcat",
    "strncat",
    "strsep",
    "strtok_r",
    "__strtok_r",
    "index",
    "rindex",
    "ffs",
    "wcslen",
    "wcscmp",
    "wmemcpy",
    "wmemset",
    "wmemcmp",
    "wmemchr",
    // The same, which end the program if the destination is too small.
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__mempcpy_chk",
    "__strcpy_chk",
    "__strncpy_chk",
    "__stpcpy_chk",
    "__stpncpy_chk",
    "__strcat_chk",
    "__strncat_chk",
    "__explicit_bzero_chk",
    // Numbers and characters.
    "abs",
    "labs",
    "llabs",
    "div",
    "ldiv",
    "lldiv",
    "atoi",
    "atol",
    "atoll",
    "strtol",
    "strtoul",
    "strtoll",
    "strtoull",
    "__isoc23_strtol",
    "__isoc23_strtoul",
    "__isoc23_strtoll",
    "__isoc23_strtoull",
    "strtod",
    "strtof",
    "tolower",
    "toupper",
    "isalpha",
    "isdigit",
    "isspace",
    "isalnum",
    "isupper",
    "islower",
    "isxdigit",
    "isprint",
    "ispunct",
    "__ctype_b_loc",
    "__ctype_tolower_loc",
    "__ctype_toupper_loc",
    "__ctype_get_mb_cur_max",
    // Memory from the heap.
    "malloc",
    "calloc",
    "realloc",
    "free",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "strdup",
    "strndup",
    // Of a thread.
    "__errno_location",
    "__tls_get_addr",
    // These end the program, without unwinding.
    "abort",
    "__stack_chk_fail",
    "__chk_fail",
    "__assert_fail",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_elsewhere_is_not_among_them() {
        for name in
            ["qsort", "read", "printf", "exit", "pthread_mutex_lock", "setjmp", "longjmp", "dlsym", "fork", "raise"]
        {
            assert!(!returns(name), "{name}");
        }
        assert!(returns("memcpy") && returns("free"));
    }
}
