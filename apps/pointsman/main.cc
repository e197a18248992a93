#include <cstdio>

int main() {
  std::puts("pointsman " POINTSMAN_VERSION);
  return 0;
}
