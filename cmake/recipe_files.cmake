# cmake -DRECIPES=a.toml;b.toml -DOUTPUT=FILE -P recipe_files.cmake: writes the files as recipe_files of trainer/plan/recipe.h. Bytes, since
# C guarantees only 4095 of them in a string.
set(texts "")
set(rows "")
foreach(path IN LISTS RECIPES)
  get_filename_component(name ${path} NAME_WE)
  string(MAKE_C_IDENTIFIER ${name} identifier)
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND texts "static const char text_of_${identifier}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", text_of_${identifier}},\n")
endforeach()
file(WRITE ${OUTPUT} "/* Made by cmake/recipe_files.cmake from recipes/. */
#include \"trainer/plan/recipe.h\"

${texts}
const RecipeFile recipe_files[] = {
${rows}    {NULL, NULL},
};
")
