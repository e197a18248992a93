#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

namespace pointsman::test {

using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using CertificatePtr = std::unique_ptr<X509, decltype(&X509_free)>;

// A certificate and its key.
struct Certificate {
  KeyPtr key{EVP_EC_gen("P-256"), &EVP_PKEY_free};
  CertificatePtr x509{X509_new(), &X509_free};
};

struct CertificateOptions {
  std::string subject = "localhost";
  std::string names = "DNS:localhost,IP:127.0.0.1";  // subjectAltName; empty: none
  bool ca = false;
  long from_s = -3600;  // valid from now on, and until
  long to_s = 24 * 3600;
};

// Signed by `signer`, or by itself.
inline Certificate make_certificate(const CertificateOptions& options,
                                    const Certificate* signer = nullptr) {
  static long serial = 0;
  Certificate made;
  X509* const x = made.x509.get();
  X509_set_version(x, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(x), options.from_s);
  X509_gmtime_adj(X509_getm_notAfter(x), options.to_s);
  X509_set_pubkey(x, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(options.subject.c_str()), -1,
                             -1, 0);
  const Certificate& by = signer == nullptr ? made : *signer;
  X509_set_issuer_name(x, X509_get_subject_name(by.x509.get()));
  X509V3_CTX context;
  X509V3_set_ctx(&context, by.x509.get(), x, nullptr, nullptr, 0);
  const auto extend = [&](int id, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
    ASSERT_NE(extension, nullptr) << value;
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
  };
  extend(NID_basic_constraints, options.ca ? "critical,CA:TRUE" : "CA:FALSE");
  if (!options.names.empty() && !options.ca) extend(NID_subject_alt_name, options.names);
  X509_sign(x, by.key.get(), EVP_sha256());
  return made;
}

// A folder for PEM files, gone with the object.
class CertificateFolder {
 public:
  CertificateFolder() {
    std::string name = std::filesystem::temp_directory_path() / "pointsman-tls-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~CertificateFolder() { std::filesystem::remove_all(folder_); }
  CertificateFolder(const CertificateFolder&) = delete;
  CertificateFolder& operator=(const CertificateFolder&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  // NAME.crt and NAME.key, as a whole: written beside and renamed.
  void write(const std::string& name, const Certificate& certificate) const {
    replace(name + ".crt", [&](std::FILE* file) { PEM_write_X509(file, certificate.x509.get()); });
    replace(name + ".key", [&](std::FILE* file) {
      PEM_write_PrivateKey(file, certificate.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }
  std::string write_text(const std::string& name, const std::string& text) const {
    replace(name, [&](std::FILE* file) { std::fwrite(text.data(), 1, text.size(), file); });
    return path(name);
  }
  void write_encrypted_key(const std::string& name, const Certificate& certificate) const {
    replace(name, [&](std::FILE* file) {
      const unsigned char word[] = "word";
      PEM_write_PrivateKey(file, certificate.key.get(), EVP_aes_128_cbc(), word, 4, nullptr,
                           nullptr);
    });
  }

 private:
  template <typename Write>
  void replace(const std::string& name, Write&& write) const {
    const std::string fresh = path(name + ".new");
    std::FILE* const file = std::fopen(fresh.c_str(), "wb");
    ASSERT_NE(file, nullptr);
    write(file);
    std::fclose(file);
    std::filesystem::rename(fresh, path(name));
  }

  std::filesystem::path folder_;
};

}  // namespace pointsman::test
