// The checks. Each runs to its end whatever it finds; README.md beside this says what each shows.
#pragma once

#include "test/gpu/check_run.h"
#include "test/gpu/verdict.h"

namespace headroom {

// device_checks.cc
void CheckLoadOnce(CheckRun& run, Verdict& verdict);
void CheckLatency(CheckRun& run, Verdict& verdict);
// Leaves the device lost, where it is a real card: the last check of a process.
void CheckDeviceLost(CheckRun& run, Verdict& verdict);

// estimate_checks.cc
void CheckCalibration(CheckRun& run, Verdict& verdict);
// Prints what each shape takes, for test/gpu/check to compare two devices by.
void CheckPeaks(CheckRun& run, Verdict& verdict);

// limit_checks.cc
void CheckHardLimit(CheckRun& run, Verdict& verdict);
void CheckFragmentation(CheckRun& run, Verdict& verdict);

// traffic_checks.cc
void CheckBurst(CheckRun& run, Verdict& verdict);
void CheckRecovery(CheckRun& run, Verdict& verdict);
// Prints "serving" once it serves: from then on another process may take the card's memory and give it back.
void CheckNeighbour(CheckRun& run, Verdict& verdict);

// Beside the verdicts, on stdout: a line for people, and a figure for test/gpu/check.
void PrintInfo(const std::string& text);
void PrintFact(const std::string& name, Bytes value);

}  // namespace headroom
