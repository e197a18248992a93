"""Certificates for tests, made by the `openssl` program."""

import pathlib
import subprocess


def _openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


class Certificate:
    """A certificate and its key, as files: `certificate`, `key`."""

    def __init__(self, folder, name, *extensions, ca=None, days=30, subject=None):
        folder = pathlib.Path(folder)
        self.certificate = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"
        request = folder / f"{name}.csr"
        words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        subject = ["-subj", f"/CN={subject or name}"]
        _openssl("req", "-new", *words, "-keyout", self.key, "-out", request, *subject)
        config = folder / f"{name}.ext"
        config.write_text("\n".join(extensions) + "\n")
        signed_by = ["-signkey", self.key]
        if ca:
            signed_by = ["-CA", ca.certificate, "-CAkey", ca.key, "-CAcreateserial"]
        # A negative number makes one that has expired.
        _openssl(
            *["x509", "-req", "-in", request, *signed_by, "-days", days, "-extfile", config],
            *["-out", self.certificate],
        )


class Authority(Certificate):
    """A CA that signs certificates."""

    def __init__(self, folder, name="ca"):
        super().__init__(folder, name, "basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign")
        self.folder = folder

    def server(self, name="server", names=("DNS:localhost", "IP:127.0.0.1"), **more):
        alternatives = "subjectAltName=" + ",".join(names)
        return Certificate(
            self.folder, name, alternatives, "extendedKeyUsage=serverAuth", ca=self, **more
        )

    def client(self, name="client", **more):
        return Certificate(self.folder, name, "extendedKeyUsage=clientAuth", ca=self, **more)
