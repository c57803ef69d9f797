# SPDX-License-Identifier: Apache-2.0 OR MIT
"""rtrace for Spack: the static binary of a release, as `cargo xtask dist` makes it."""

from spack.package import *


class Rtrace(Package):
    """Exact, live tracing of library calls on Linux, from outside the program."""

    homepage = "https://github.com/rtrace/rtrace"
    url = "https://github.com/rtrace/rtrace/releases/download/v@VERSION@/rtrace-@VERSION@-x86_64-linux.tar.gz"

    license("Apache-2.0 OR MIT")

    version("@VERSION@", sha256="@SHA256@")

    requires("target=x86_64: platform=linux", msg="rtrace needs Linux on x86_64")

    def install(self, spec, prefix):
        install_tree("bin", prefix.bin)
        install_tree("share", prefix.share)
