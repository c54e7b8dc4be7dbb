/* What is asked of containers: names, nouns, facts, and the rows that answer. */
#include "formats/container.h"
#include "tests/support/support.h"

TEST(test_every_row_is_found_by_its_id_and_its_name)
{
    const Container *container = NULL;
    size_t count = 0;
    for (; (container = fsh_container_row(count)); count++) {
        FshContainer id = 0;
        const Container *first = fsh_container_find(container->id); /* several rows may find files */
        assert_non_null(first);
        assert_true(fsh_container_from_name(container->name, &id));
        assert_int_equal(id, container->id);
        assert_string_equal(fsh_container_name(container->id), first->name);
        assert_string_equal(fsh_container_noun(container->id, 1), first->one);
        assert_string_equal(fsh_container_noun(container->id, 2), first->many);
        assert_int_equal(first->facts & FSH_HAS_FILES, container->facts & FSH_HAS_FILES);
        assert_true(first == container || container->facts & FSH_HAS_FILES);
    }
    assert_true(count >= 6);
}

TEST(test_what_is_written_is_known_by_the_suffix_of_its_name)
{
    const Container *container = NULL;
    for (size_t i = 0; (container = fsh_container_row(i)); i++) {
        char name[64];
        fsh_file_name(name, sizeof name, container->id, "train", 3, 16);
        assert_int_equal(container->write_name != NULL, container->writer != NULL);
        assert_int_equal(*name != 0, container->writer != NULL);
        if (container->writer)
            assert_ptr_equal(fsh_container_of_name(name), container);
    }
    assert_null(fsh_container_of_name("train.txt"));
    assert_null(fsh_container_of_name(".fshard"));
}

/* A container of records opens by what its files say; all others by what a manifest or a look tells. */
TEST(test_facts_come_together)
{
    const Container *container = NULL;
    for (size_t i = 0; (container = fsh_container_row(i)); i++) {
        const FshContainer id = container->id;
        const bool records = fsh_container_has(id, FSH_HAS_METADATA);
        assert_int_equal(records, container->sample == fsh_record_file_sample);
        assert_int_equal(records, fsh_container_has(id, FSH_HAS_CHECKSUMS));
        assert_int_equal(records, fsh_container_has(id, FSH_HAS_SIZES));
        assert_int_equal(fsh_container_has(id, FSH_HAS_INDEX), container->check_index != NULL);
        assert_true(records || !fsh_container_has(id, FSH_HAS_HASH));
        assert_true(records || !fsh_container_has(id, FSH_HAS_COMPRESSION));
    }
}

TEST(test_an_unknown_container_can_do_nothing)
{
    FshContainer id = FSH_CONTAINER_LMDB;
    assert_false(fsh_container_from_name("zip", &id));
    assert_int_equal(id, FSH_CONTAINER_LMDB);
    assert_null(fsh_container_find(0));
    assert_false(fsh_container_has(0, FSH_HAS_METADATA));
    assert_string_equal(fsh_container_name((FshContainer)99), "unknown");
}
