#include "tokens/tokenizer.h"

bool pointsman::token_ids_built() {
  return true;
}
