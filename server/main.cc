#include "server/program.h"

int main(int argc, char** argv) { return headroom::RunProgram(argc, argv); }
