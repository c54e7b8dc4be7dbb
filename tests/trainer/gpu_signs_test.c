/* What is taken for an NVIDIA GPU: in folders that stand for a machine. */
#include "trainer/backend/gpu_signs.h"

#include <stdlib.h>

#include "tests/support/support.h"

static void add_device(TestFolder *folder, const char *name, const char *vendor, const char *class)
{
    test_file_write_text(test_path(folder, "sys/bus/pci/devices/%s/vendor", name), vendor);
    test_file_write_text(test_path(folder, "sys/bus/pci/devices/%s/class", name), class);
}

TEST_IN_FOLDER(test_a_card_without_its_driver_is_seen, folder)
{
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    assert_int_equal(gpu_signs(folder->path), GPU_SIGNS_NONE);
    add_device(folder, "0000:00:02.0", "0x8086\n", "0x030000\n"); /* of another maker */
    add_device(folder, "0000:01:00.1", "0x10de\n",
               "0x040300\n"); /* sound of a card that is not passed through */
    assert_int_equal(gpu_signs(folder->path), GPU_SIGNS_NONE);
    add_device(folder, "0000:81:00.0", "0x10de\n", "0x030200\n");
    assert_int_equal(gpu_signs(folder->path), GPU_SIGNS_THERE);
}

TEST_IN_FOLDER(test_a_driver_is_a_sign, folder)
{
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    test_file_write_text(test_path(folder, "dev/nvidiactl"), "");
    assert_int_equal(gpu_signs(folder->path), GPU_SIGNS_THERE);
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "0", 1), 0);
    assert_int_equal(gpu_signs(folder->path), GPU_SIGNS_THERE);
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "-1", 1), 0);
    assert_int_equal(gpu_signs(folder->path), GPU_SIGNS_HIDDEN);
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
    assert_int_equal(gpu_signs(folder->path), GPU_SIGNS_HIDDEN);
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
}
