// The smallest program there is: what an exec costs without the program's own start.
int main(void) {
  return 0;
}
