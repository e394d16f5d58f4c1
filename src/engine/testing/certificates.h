// Certificates for tests, made by openssl for the occasion; their keys are gone.
#pragma once

namespace drupe::testing_certificates {

// /C=XX/O=Example  Authority /CN=Root ONE
inline constexpr const char* kPlain =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIB1DCCAXmgAwIBAgIUS19+puMsN1oWs9JL6oyLt1sPGC8wCgYIKoZIzj0EAwIw\n"
    "PjELMAkGA1UEBhMCWFgxHDAaBgNVBAoME0V4YW1wbGUgIEF1dGhvcml0eSAxETAP\n"
    "BgNVBAMMCFJvb3QgT05FMCAXDTI2MTIwMTExMzA0MVoYDzIwODEwOTAzMTEzMDQx\n"
    "WjA+MQswCQYDVQQGEwJYWDEcMBoGA1UECgwTRXhhbXBsZSAgQXV0aG9yaXR5IDER\n"
    "MA8GA1UEAwwIUm9vdCBPTkUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQOreRs\n"
    "INXaoVknWBHEPLqFMcrrjqnSyk0GFOx5wQfe2n4WYBDgHzytsjszYX/xzTpZkFxB\n"
    "/f6lNrTJLRyuAUpjo1MwUTAdBgNVHQ4EFgQUG7RxLShG3RZzJME6J+rD8iRyhSAw\n"
    "HwYDVR0jBBgwFoAUG7RxLShG3RZzJME6J+rD8iRyhSAwDwYDVR0TAQH/BAUwAwEB\n"
    "/zAKBggqhkjOPQQDAgNJADBGAiEA+Ndxuzx23wTNuX5ewapkS/uBOKgi+rjBDvvT\n"
    "JIF3gVUCIQDz4KvsqyAkHZqhvFaOxqtjJ1SiqWVT9HQCpQ44uJ/hYg==\n"
    "-----END CERTIFICATE-----\n";

// /O=Größe Ä/CN=Ünïcode  Root
inline constexpr const char* kUtf8 =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBtTCCAVugAwIBAgIUdIIhm1p5UQwn1BrTwQGYky5ot6EwCgYIKoZIzj0EAwIw\n"
    "LzETMBEGA1UECgwKR3LDtsOfZSDDhDEYMBYGA1UEAwwPw5xuw69jb2RlICBSb290\n"
    "MCAXDTI2MTIwMTExMzA0MVoYDzIwODEwOTAzMTEzMDQxWjAvMRMwEQYDVQQKDApH\n"
    "csO2w59lIMOEMRgwFgYDVQQDDA/DnG7Dr2NvZGUgIFJvb3QwWTATBgcqhkjOPQIB\n"
    "BggqhkjOPQMBBwNCAARV5FhtCMl4Q+MT3F8GDBmXbax2a8y4s9TPzsICF1RXx5x4\n"
    "NFZLh3YbkhJZVTU9bILk9UoZqblM8awI2ez7kQcKo1MwUTAdBgNVHQ4EFgQUkbjE\n"
    "P5zqECjSO/TieSE74Hn31yEwHwYDVR0jBBgwFoAUkbjEP5zqECjSO/TieSE74Hn3\n"
    "1yEwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBndnhdaCOc8jib\n"
    "MM4sC/ofEpjzEbrk2HXfuqy8S/jgJgIhAMIU0PrM7Sumuu19Y3MJWn84vPgbs9vH\n"
    "/kvETCta7INq\n"
    "-----END CERTIFICATE-----\n";

// /CN=b+CN=a/O=Multi
inline constexpr const char* kMulti =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBojCCAUmgAwIBAgIUXVCIG1N33q/mlbe/vmUYrodDV0AwCgYIKoZIzj0EAwIw\n"
    "JjEUMAgGA1UEAwwBYTAIBgNVBAMMAWIxDjAMBgNVBAoMBU11bHRpMCAXDTI2MTIw\n"
    "MTExMzA0MVoYDzIwODEwOTAzMTEzMDQxWjAmMRQwCAYDVQQDDAFhMAgGA1UEAwwB\n"
    "YjEOMAwGA1UECgwFTXVsdGkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATA/t6+\n"
    "fwDN5dAR9xziUQNs3vJIWwPueE1vFsMip7nMOPyhE81fuTXiVL0Ez1wU85Vn4Vtw\n"
    "a4yvK4AuzbJMHkbQo1MwUTAdBgNVHQ4EFgQUsBE8udcV/vI/kM4Wo+uimQO26pIw\n"
    "HwYDVR0jBBgwFoAUsBE8udcV/vI/kM4Wo+uimQO26pIwDwYDVR0TAQH/BAUwAwEB\n"
    "/zAKBggqhkjOPQQDAgNHADBEAiAPIBDGVBvWg35Hr0ppE1olcnO1FyWEOY52y31A\n"
    "U2BmOQIgYylBTO+I+/mynHmmTQEEiolCN64lPzwJgFXrK2A8PZY=\n"
    "-----END CERTIFICATE-----\n";

}  // namespace drupe::testing_certificates
