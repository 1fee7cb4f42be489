// A certificate for localhost and its key, made for the tests and trusted by nobody, and another pair.
#pragma once

namespace headroom {

inline constexpr const char* kCertificate =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBnDCCAUGgAwIBAgIUBMYb8BmAYlNFnXE2zDvupgPtr6YwCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEzMDIwMzM0M1oYDzIxMjYxMTA2\n"
    "MjAzMzQzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
    "PQMBBwNCAAR8ncIB8JcYHbHg/AutMMmCW4GKeKiIVLzrWe9VdNB8SDbjaEsfSXZy\n"
    "8SkehkYF+2SKsds6qnStI/N/l9y19Jeco28wbTAdBgNVHQ4EFgQUn6B5oV4hfu9B\n"
    "R6u+mCmuA1BZAzgwHwYDVR0jBBgwFoAUn6B5oV4hfu9BR6u+mCmuA1BZAzgwDwYD\n"
    "VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI\n"
    "zj0EAwIDSQAwRgIhAMjE+R6QCUHKYGoGxqABktxdNGJJdPxkbtcHPuQMiMFBAiEA\n"
    "w4g6uqkZVi3KbR7Bt9SpUhjSDtinyburrmlA6vQU/xc=\n"
    "-----END CERTIFICATE-----\n";

inline constexpr const char* kKey =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg9oKOJm4V13PfwCy3\n"
    "tWxZl0uKbp9QzNKhdXVQe88iN2WhRANCAAR8ncIB8JcYHbHg/AutMMmCW4GKeKiI\n"
    "VLzrWe9VdNB8SDbjaEsfSXZy8SkehkYF+2SKsds6qnStI/N/l9y19Jec\n"
    "-----END PRIVATE KEY-----\n";

inline constexpr const char* kOtherCertificate =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBmzCCAUGgAwIBAgIUJ5S4HyedGRngB+XqXwpON6RBcKUwCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEzMDIwMzM0M1oYDzIxMjYxMTA2\n"
    "MjAzMzQzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
    "PQMBBwNCAATt7rub/93VD/KEMtvHz+Cm9DUUm7YG8qihwJdMLIV+mDkBW4VRXRSl\n"
    "8oxvsNjBx6yakkIgDqZ9ZoyCDGpF/SCEo28wbTAdBgNVHQ4EFgQU9z2bwD/Mt50N\n"
    "pycz1Ag0V3Gym2gwHwYDVR0jBBgwFoAU9z2bwD/Mt50Npycz1Ag0V3Gym2gwDwYD\n"
    "VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI\n"
    "zj0EAwIDSAAwRQIhALRDZuCZFYMijyVNIr887I5rlMVDFtHYgDQ4uVGg2PGnAiBz\n"
    "yHaAIJ9qScZByLzDZvRE2xOeI3Ky/BDVrlN+blmySA==\n"
    "-----END CERTIFICATE-----\n";

inline constexpr const char* kOtherKey =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgYwmowotGgssCQ6L2\n"
    "4p6oaaqOpqiXasX8grEnenzpQY2hRANCAATt7rub/93VD/KEMtvHz+Cm9DUUm7YG\n"
    "8qihwJdMLIV+mDkBW4VRXRSl8oxvsNjBx6yakkIgDqZ9ZoyCDGpF/SCE\n"
    "-----END PRIVATE KEY-----\n";

}  // namespace headroom
