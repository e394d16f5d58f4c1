// What PID 1 of the yardsticks' guests does first.
#pragma once

// Mounts /proc, /sys and /dev, and loads the modules that /mods/order lists.
void mount_and_load(void);
