// What the C++ library would bring in for its errors (unwinder, demangler, locale) is several times the
// agent's own size. The agent throws nothing; a program error or the end of memory ends it with a word on the
// console.
#include <cstdlib>
#include <cstring>
#include <new>

#include <unistd.h>

namespace {

[[noreturn]] void die(const char* why) {
  static constexpr char kHead[] = "drupe-init: fatal: ";
  [[maybe_unused]] ssize_t put = ::write(STDERR_FILENO, kHead, sizeof kHead - 1);
  put = ::write(STDERR_FILENO, why, std::strlen(why));
  put = ::write(STDERR_FILENO, "\n", 1);
  ::_exit(70);
}

}  // namespace

namespace std {
void __throw_bad_alloc() {
  die("out of memory");
}
void __throw_bad_array_new_length() {
  die("array too long");
}
void __throw_bad_function_call() {
  die("empty function called");
}
void __throw_length_error(const char* what) {
  die(what);
}
void __throw_logic_error(const char* what) {
  die(what);
}
void __throw_out_of_range(const char* what) {
  die(what);
}
void __throw_out_of_range_fmt(const char* what, ...) {
  die(what);
}
void __throw_invalid_argument(const char* what) {
  die(what);
}
}  // namespace std

extern "C" [[noreturn]] void __cxa_pure_virtual() {
  die("pure virtual call");
}

void* operator new(std::size_t size) {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) die("out of memory");
  return memory;
}
void* operator new[](std::size_t size) {
  return operator new(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
